/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Weighted max-min shares of links: everybody's speed per weight rises alike until a link is full
 * or somebody has all that they can take; these stay, and the others go on (Bertsekas and Gallager,
 * Data Networks, section 6.5.2).
 */
#ifndef MLTCP_FILLING_H
#define MLTCP_FILLING_H

#include <stdint.h>

struct filling_link {
	double left; /* of its rate, that nobody has */
	double wanted; /* weights of those that take part, times how often they cross it */
	uint32_t active; /* how many these are */
	uint32_t first, end; /* they are listed there in `on` */
};

struct filling_crossing {
	double times; /* what is sent crosses the link */
	uint32_t link;
};

struct filling {
	uint32_t *first; /* of each user, of its crossings, and the end */
	struct filling_crossing *crossings;
	double *most; /* that each user can take; NULL: all that there is */
	double *weight;
	double *share; /* what each user gets */
	struct filling_link *links;
	uint32_t link_count;
	uint32_t *asked; /* room for as many */
	uint32_t *on; /* room for as many as there are crossings */
	uint32_t *open; /* users that take part; it is used up */
	uint32_t open_count;
};

void fill(struct filling *filling);

/* All that one user can take of what is left. */
void fill_one(struct filling *filling, uint32_t user);

#endif
