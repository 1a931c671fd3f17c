// SPDX-License-Identifier: BSD-2-Clause
/* Which chunks of a tensor have anything in them, and copies of those alone. */
#include <string.h>
#include "worker.h"

static inline uint32_t length_of_chunk(uint64_t count, uint64_t begin, uint32_t values)
{
	return count - begin < values ? count - begin : values;
}

/* The sign alone is not a value: -0 is zero. */
enum chunk_content content_of(const void *from, uint32_t kind, uint32_t count)
{
	uint32_t any = 0, i;

	if (element_bytes(kind) == 4) {
		const uint32_t *bits = from;

		for (i = 0; i < count; i++)
			any |= bits[i];
	} else {
		const uint16_t *bits = from;

		for (i = 0; i < count; i++)
			any |= bits[i];
		any <<= 16;
	}
	if (!any)
		return CONTENT_ZEROS;
	/* An OR that is the sign alone is that of zeros, if it isn't of integers. */
	return kind == KIND_INT32 || any << 1 ? CONTENT_VALUES : CONTENT_NEGATIVE_ZEROS;
}

uint64_t count_present(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		       const uint8_t *marks, uint32_t block, uint64_t *blocks)
{
	uint64_t begin, found = 0, before;
	uint32_t first;

	*blocks = 0;
	for (begin = 0; begin < count; begin += values) {
		const char *at = (const char *)from + begin * element_bytes(kind);
		uint32_t length = length_of_chunk(count, begin, values);

		if (marks && !(*marks++ & CHUNK_SUMMED))
			continue;
		before = *blocks;
		for (first = 0; first < length; first += block)
			*blocks +=
				content_of(at + first * element_bytes(kind), kind,
					   length_of_chunk(length, first, block)) == CONTENT_VALUES;
		found += *blocks > before;
	}
	return found;
}

void copy_summed(const void *from, uint32_t kind, uint64_t count, uint32_t values,
		 const uint8_t *marks, void *to)
{
	uint64_t size = element_bytes(kind), begin;

	for (begin = 0; begin < count; begin += values, marks++) {
		uint64_t bytes = length_of_chunk(count, begin, values) * size;

		if (*marks & CHUNK_SUMMED)
			memcpy((char *)to + begin * size, (const char *)from + begin * size, bytes);
		else if (*marks & CHUNK_NEGATIVE)
			memset((char *)to + begin * size, 0, bytes);
	}
}
