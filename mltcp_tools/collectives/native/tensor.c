// SPDX-License-Identifier: BSD-2-Clause
/* The tensor that a worker sums: its chunks, and which of them are to be sent. */
#include "internal.h"

bool has_exponents(const struct worker *w)
{
	return w->request.kind != KIND_INT32;
}

uint32_t length_of(const struct worker *w, uint32_t chunk)
{
	uint64_t begin = (uint64_t)chunk * w->values;
	uint64_t rest = w->request.count - begin;

	return rest < w->values ? rest : w->values;
}

uint32_t words_of(const struct worker *w, uint32_t length)
{
	return w->is_short ? (length + 7) / 8 * 4 : (length + 3) / 4 * 4;
}

const void *values_of(const struct worker *w, uint32_t chunk)
{
	return (const char *)w->request.from +
	       (uint64_t)chunk * w->values * element_bytes(w->request.kind);
}

/* Whether a chunk is to be sent. The tensor is read from its beginning to its end, as far as was
 * needed yet: in steps of slots it would come from memory three times as slowly. */
static bool has_something(struct worker *w, uint32_t chunk)
{
	if (!w->request.marks)
		return true;
	for (; w->searched <= chunk; w->searched++) {
		switch (content_of(values_of(w, w->searched), w->request.kind,
				   length_of(w, w->searched))) {
		case CONTENT_VALUES:
			w->request.marks[w->searched] |= CHUNK_PRESENT;
			break;
		case CONTENT_NEGATIVE_ZEROS:
			w->request.marks[w->searched] |= CHUNK_NEGATIVE;
			break;
		case CONTENT_ZEROS:
			break;
		}
	}
	return w->request.marks[chunk] & CHUNK_PRESENT;
}

/* Set `own` to the first chunk from `chunk` on in which we have something, in steps of slots. */
void find_own(struct worker *w, struct slot *slot, uint64_t chunk)
{
	while (chunk < w->chunks && !has_something(w, chunk))
		chunk += w->stride;
	slot->looked = true;
	slot->own = chunk < w->chunks ? (uint32_t)chunk : AGG_END;
	slot->own_exponent = AGG_EXPONENT_NONE;
	if (slot->own != AGG_END && has_exponents(w))
		slot->own_exponent = exponent_of(values_of(w, slot->own), w->request.kind,
						 length_of(w, slot->own));
}
