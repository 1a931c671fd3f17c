// SPDX-License-Identifier: GPL-2.0-only
/* Which chunks of a tensor have anything in them, and copies of those alone. */
#include <string.h>
#include "worker.h"

static inline uint32_t length_of_chunk(uint64_t count, uint64_t begin, uint32_t values)
{
	return count - begin < values ? count - begin : values;
}

/* present: a byte per chunk of `values` elements, 1 where one of them isn't zero. The sign alone is
 * not a value: -0 is zero. */
uint64_t mark_present(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		      uint8_t *present)
{
	uint64_t begin, chunk = 0, negative = 0;

	for (begin = 0; begin < count; begin += values, chunk++) {
		uint32_t length = length_of_chunk(count, begin, values), any = 0, i;

		if (element_bytes(kind) == 4) {
			const uint32_t *bits = (const uint32_t *)from + begin;

			for (i = 0; i < length; i++)
				any |= bits[i];
		} else {
			const uint16_t *bits = (const uint16_t *)from + begin;

			for (i = 0; i < length; i++)
				any |= (uint32_t)bits[i] << 16;
		}
		/* An OR that is the sign alone is that of zeros, if it isn't of integers. */
		present[chunk] = kind == KIND_INT32 ? any != 0 : any << 1 != 0;
		negative += any && !present[chunk];
	}
	return negative;
}

void copy_marked(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		 const uint8_t *marks, void *to)
{
	uint64_t size = element_bytes(kind), begin, chunk = 0;

	for (begin = 0; begin < count; begin += values, chunk++)
		if (marks[chunk])
			memcpy((char *)to + begin * size, (const char *)from + begin * size,
			       length_of_chunk(count, begin, values) * size);
}

void clear_unmarked(uint32_t kind, uint64_t count, uint32_t values, const uint8_t *marks, void *to)
{
	uint64_t size = element_bytes(kind), begin, chunk = 0;

	for (begin = 0; begin < count; begin += values, chunk++)
		if (!marks[chunk])
			memset((char *)to + begin * size, 0,
			       length_of_chunk(count, begin, values) * size);
}
