// SPDX-License-Identifier: BSD-2-Clause
/* Floating point to integers that add up exactly, and back (the error: worker.h). */
#include <math.h>
#include <string.h>
#include "worker.h"

/* What a double is above when its last bit is worth 1. */
#define ONES 0x1.8p52

uint32_t element_bytes(uint32_t kind)
{
	return kind == KIND_FLOAT16 || kind == KIND_BFLOAT16 ? 2 : 4;
}

static inline float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* To nearest, ties to even, of a value below 2^31: it is in the last bits of the sum. */
static inline int32_t rounded(double value)
{
	double sum = value + ONES;
	uint64_t bits;

	memcpy(&bits, &sum, sizeof(bits));
	return (int32_t)(uint32_t)bits;
}

/* Loops of these two are loops of vectors on every processor, as the compiler's own aren't. */

/* The exponents' biases differ by 112; a multiplication makes subnormals right, too. */
static inline float from_half(uint16_t half)
{
	uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
	uint32_t bits = bits_of(from_bits(magnitude) * 0x1p112f);

	return from_bits(bits | (magnitude >= 0x0f800000 ? 0x7f800000 : 0) |
			 (uint32_t)(half & 0x8000) << 16);
}

/* To nearest, ties to even. */
static inline uint16_t to_half(float value)
{
	uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
	/* What a half's last bit is worth while it is subnormal, a float's at 0.5 is, too. */
	uint32_t small = bits_of(from_bits(magnitude) + 0.5f) - 0x3f000000;
	uint32_t large = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
	uint32_t half = magnitude < 0x38800000 ? small : large;

	half = magnitude >= 0x47800000 || half > 0x7c00 ? 0x7c00 : half;
	return (magnitude > 0x7f800000 ? 0x7e00 : half) | (bits >> 16 & 0x8000);
}

static inline float load(const void *from, uint32_t kind, uint32_t i)
{
	if (kind == KIND_FLOAT32)
		return ((const float *)from)[i];
	if (kind == KIND_FLOAT16)
		return from_half(((const uint16_t *)from)[i]);
	return from_bits((uint32_t)((const uint16_t *)from)[i] << 16);
}

/* To nearest, ties to even. */
static inline uint16_t to_bfloat16(float value)
{
	uint32_t bits = bits_of(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return bits >> 16 | 0x40; /* a NaN stays one */
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline void store(void *to, uint32_t kind, uint32_t i, double value)
{
	if (kind == KIND_FLOAT32)
		((float *)to)[i] = (float)value;
	else if (kind == KIND_FLOAT16)
		((uint16_t *)to)[i] = to_half((float)value);
	else
		((uint16_t *)to)[i] = to_bfloat16((float)value);
}

/* The smallest e such that every value is below 2^e, from the largest bits without sign. */
FOR_EACH_PROCESSOR
int16_t exponent_of(const void *from, uint32_t kind, uint32_t count)
{
	uint32_t largest = 0, i;

	if (kind == KIND_FLOAT32) {
		const uint32_t *bits = from;

		for (i = 0; i < count; i++) {
			uint32_t magnitude = bits[i] & 0x7fffffff;

			largest = magnitude > largest ? magnitude : largest;
		}
	} else {
		for (i = 0; i < count; i++) {
			uint32_t magnitude = bits_of(load(from, kind, i)) & 0x7fffffff;

			largest = magnitude > largest ? magnitude : largest;
		}
	}
	if (!largest)
		return AGG_EXPONENT_NONE;
	if (largest >= 0x7f800000)
		return AGG_EXPONENT_NONFINITE;
	largest >>= 23;
	return (int16_t)(largest ? largest : 1) - 126;
}

/* power: of two, that values are multiplied by. Unused for int32. */
FOR_EACH_PROCESSOR
void quantise(const void *from, uint32_t kind, uint32_t count, int32_t power, int32_t *to)
{
	double factor = ldexp(1.0, power);
	uint32_t i;

	if (kind == KIND_INT32) {
		memcpy(to, from, count * 4);
	} else if (kind == KIND_FLOAT32) {
		const float *values = from;

		for (i = 0; i < count; i++)
			to[i] = rounded(values[i] * factor);
	} else {
		for (i = 0; i < count; i++)
			to[i] = rounded(load(from, kind, i) * factor);
	}
	for (i = count; i % 4; i++)
		to[i] = 0;
}

FOR_EACH_PROCESSOR
void quantise_short(const void *from, uint32_t kind, uint32_t count, int32_t power, int16_t *to)
{
	double factor = ldexp(1.0, power);
	uint32_t i;

	for (i = 0; i < count; i++)
		to[i] = (int16_t)rounded(load(from, kind, i) * factor);
	for (i = count; i % 8; i++)
		to[i] = 0;
}

FOR_EACH_PROCESSOR
void restore_short(const int16_t *from, uint32_t kind, uint32_t how, uint32_t count, int32_t power,
		   uint32_t workers, void *to)
{
	double factor = ldexp(1.0, power);
	uint32_t i;

	if (how == HOW_AVERAGE)
		factor /= workers;
	for (i = 0; i < count; i++)
		store(to, kind, i, from[i] * factor);
}

/* power: of two, that sums are multiplied by. */
FOR_EACH_PROCESSOR
void restore(const int32_t *from, uint32_t kind, uint32_t how, uint32_t count, int32_t power,
	     uint32_t workers, void *to)
{
	double factor = ldexp(1.0, power);
	uint32_t i;

	if (how == HOW_AVERAGE)
		factor /= workers;
	if (kind == KIND_INT32) {
		memcpy(to, from, count * 4);
	} else if (kind == KIND_FLOAT32) {
		float *values = to;

		for (i = 0; i < count; i++)
			values[i] = (float)(from[i] * factor);
	} else {
		for (i = 0; i < count; i++)
			store(to, kind, i, from[i] * factor);
	}
}
