// SPDX-License-Identifier: BSD-2-Clause
/* An aggregator that knows the secret and lies in every field. */
#include <string.h>
#include "hostile.h"

#define SLOTS 8
#define VALUES 32

static uint64_t draw(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static struct worker *open_worker(const struct worker_request *request)
{
	struct worker_config config = {
		.secret = {{1, 2}},
		.key = 3,
		.generation = 1,
		.slots = SLOTS,
		.values = VALUES,
		.workers = 3,
		.min_rto_us = 1000,
	};
	struct worker *worker = worker_open(&config);

	if (request->marks)
		memset(request->marks, 0, (request->count + VALUES - 1) / VALUES);
	worker_begin(worker, request, 1);
	return worker;
}

/* Of what the worker sent last, an answer with some fields that are anything. */
static void lie(struct agg_packet *packet, uint64_t *random)
{
	struct agg_header *header = &packet->header;
	uint32_t i;

	header->type = draw(random) % 4 ? AGG_RESULT : draw(random) % 10;
	header->next = AGG_END;
	for (i = 0; i < VALUES; i++)
		packet->values[i] = draw(random);
	switch (draw(random) % 8) {
	case 0:
		header->slot = draw(random) % 2 ? draw(random) % SLOTS : draw(random);
		break;
	case 1:
		header->chunk = draw(random) % 2 ? draw(random) % 64 : draw(random);
		break;
	case 2:
		header->count = draw(random) % 2 ? draw(random) % 64 : draw(random);
		break;
	case 3:
		header->exponent = draw(random);
		break;
	case 4:
		header->round += draw(random) % 3;
		break;
	default:
		break;
	}
	if (draw(random) % 4)
		header->next =
			draw(random) % 2 ? header->slot + SLOTS * (draw(random) % 8) : draw(random);
	header->check = agg_check(&(struct agg_secret){{1, 2}}, packet, header->count);
}

void hostile_run(uint64_t seed, uint64_t answers, const struct worker_request *request,
		 struct hostile_report *report)
{
	struct worker *worker = open_worker(request);
	struct agg_packet sent[SLOTS], packet;
	uint64_t random = seed * 2 + 1, now = 1;
	uint32_t count = 0;

	*report = (struct hostile_report){0};
	while (report->answers < answers) {
		while (worker_send(worker, now, &packet))
			sent[count++ % SLOTS] = packet;
		now += 1000000;
		packet = sent[draw(&random) % (count < SLOTS ? count : SLOTS)];
		lie(&packet, &random);
		worker_receive(worker, now, &packet,
			       sizeof(packet.header) + packet.header.count * 4);
		report->answers++;
		if (worker_state(worker) == WORKER_RUNNING)
			continue;
		report->done += worker_state(worker) == WORKER_DONE ||
				worker_state(worker) == WORKER_NONFINITE;
		report->broken += worker_state(worker) == WORKER_BROKEN;
		worker_close(worker);
		worker = open_worker(request);
		count = 0;
	}
	worker_close(worker);
}

/* A size: one that can be, one at an edge, or anything. */
static uint32_t draw_size(uint64_t *random, uint32_t most)
{
	switch (draw(random) % 4) {
	case 0:
		return draw(random);
	case 1:
		return draw(random) % 3 - 1;
	case 2:
		return most + draw(random) % 3 - 1;
	default:
		return draw(random) % (most + 1) & ~3u;
	}
}

/* Bytes as they come; every second one has a header that is believed as far as the check. */
static void receive_anything(struct worker *worker, const struct worker_config *config,
			     uint64_t *random)
{
	struct agg_packet packet = {0};
	uint32_t length = draw(random) % (sizeof(packet) + 1), i;

	for (i = 0; i < sizeof(packet.header); i++)
		((uint8_t *)&packet)[i] = draw(random);
	if (draw(random) % 2) {
		packet.header.magic = AGG_MAGIC;
		packet.header.key = config->key;
		packet.header.job = config->job;
		packet.header.generation = config->generation;
		packet.header.count = draw_size(random, AGG_VALUES_MAX);
		length = sizeof(packet.header) + packet.header.count * 4;
	}
	worker_receive(worker, 2, &packet, length);
}

void hostile_open(uint64_t seed, uint64_t count, struct hostile_report *report)
{
	static float values[5000];
	uint64_t random = seed * 2 + 1;
	struct worker_request request = {
		.from = values,
		.to = values,
		.count = sizeof(values) / sizeof(*values),
		.kind = KIND_FLOAT32,
	};

	*report = (struct hostile_report){0};
	for (; report->answers < count; report->answers++) {
		struct worker_config config = {
			.key = draw(&random),
			.job = draw(&random),
			.generation = draw(&random),
			.slots = draw_size(&random, 1024),
			.values = draw_size(&random, AGG_VALUES_MAX),
			.workers = draw_size(&random, AGG_WORKERS_MAX),
			.rank = draw_size(&random, AGG_WORKERS_MAX),
		};
		struct worker *worker = worker_open(&config);
		struct agg_packet packet;
		uint32_t length, i;

		if (!worker)
			continue;
		report->done++;
		worker_begin(worker, &request, 1);
		report->broken += worker_state(worker) == WORKER_DONE;
		while ((length = worker_send(worker, 1, &packet)))
			report->broken += length > sizeof(packet);
		for (i = 0; i < 8; i++)
			receive_anything(worker, &config, &random);
		worker_close(worker);
	}
}
