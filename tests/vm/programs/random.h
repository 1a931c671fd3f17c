/* SPDX-License-Identifier: BSD-2-Clause */
/* Random numbers that a seed repeats: splitmix64 (Steele, Lea, Flood 2014). */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline uint32_t below(uint64_t *state, uint32_t limit)
{
	return (next_random(state) >> 32) * limit >> 32;
}

#endif
