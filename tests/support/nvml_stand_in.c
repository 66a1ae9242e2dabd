/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnvidia-ml.so.1, after NVIDIA's nvml.h, with two cards. Files of FOLDER say how it behaves:
 * "refused", "hang", "lost", "garbage", "unsupported", "forbidden"; each call of init and shutdown is written to "log".
 * OLD leaves out what the first versions did not have.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
enum { SUCCESS, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, NOT_LOADED = 9, LOST = 15 };

static int cards[2];
static int is_open;

static int is(const char *what)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", FOLDER, what);
	return access(path, F_OK) == 0;
}

static void say(const char *what)
{
	FILE *log = fopen(FOLDER "/log", "a");

	if (log) {
		fprintf(log, "%s\n", what);
		fclose(log);
	}
}

/* What every question is answered with, unless it is by what was asked for. */
static int state(void *card)
{
	if (!is_open)
		return 1;
	if (card == &cards[0] && is("lost"))
		return LOST;
	return is("unsupported") ? NOT_SUPPORTED : SUCCESS;
}

static int begin(void)
{
	say("init");
	while (is("hang"))
		usleep(1000);
	if (is("refused"))
		return NOT_LOADED;
	is_open = 1;
	return SUCCESS;
}

static int find(const char *address, void **card)
{
	if (strcmp(address, "0000:01:00.0") && strcmp(address, "0000:02:00.0"))
		return NOT_FOUND;
	*card = &cards[address[6] - '1'];
	return SUCCESS;
}

int nvmlShutdown(void)
{
	say("shutdown");
	is_open = 0;
	return SUCCESS;
}

#ifdef OLD
int nvmlInit(void) { return begin(); }
int nvmlDeviceGetHandleByPciBusId(const char *address, void **card) { return find(address, card); }
#else
int nvmlInit_v2(void) { return begin(); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **card) { return find(address, card); }
#endif

int nvmlDeviceGetUtilizationRates(void *card, unsigned *rates)
{
	rates[0] = is("garbage") ? 4294967295u : 73;
	rates[1] = is("garbage") ? 101 : 12;
	return state(card);
}

struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(void *card, struct memory *memory)
{
	memory->total = is("garbage") ? ~0ull : 8ull << 30;
	memory->used = is("garbage") ? ~0ull : 3ull << 30;
	return state(card);
}

int nvmlDeviceGetTemperature(void *card, unsigned sensor, unsigned *temperature)
{
	*temperature = is("garbage") ? 65535 : 61 + sensor;
	return state(card);
}

int nvmlDeviceGetClockInfo(void *card, unsigned which, unsigned *mhz)
{
	*mhz = is("garbage") ? ~0u : which == 0 ? 1830 : which == 2 ? 7000 : 1;
	return state(card);
}

int nvmlDeviceGetMaxClockInfo(void *card, unsigned which, unsigned *mhz)
{
	*mhz = is("garbage") ? ~0u : which == 0 ? 2100 : 1;
	return state(card);
}

#ifdef OLD
struct process { unsigned pid; u64 memory; };
#define PROCESSES(which) nvmlDeviceGet##which##RunningProcesses
#else
struct process { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
#define PROCESSES(which) nvmlDeviceGet##which##RunningProcesses_v3

int nvmlDeviceGetPowerUsage(void *card, unsigned *milliwatts)
{
	*milliwatts = is("garbage") ? ~0u : 115250;
	return state(card);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *card, u64 *reasons)
{
	*reasons = is("garbage") ? ~0ull : 0x24;
	return state(card);
}

struct memory_2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *card, struct memory_2 *memory)
{
	if (memory->version != (sizeof(*memory) | 2u << 24))
		return 25;
	memory->total = is("garbage") ? ~0ull : 8ull << 30;
	memory->used = is("garbage") ? ~0ull : 2ull << 30;
	return state(card);
}

struct sample { unsigned pid; u64 time_us; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(void *card, struct sample *samples, unsigned *count, u64 since_us)
{
	static u64 now_us = 1000000;

	if (is("forbidden"))
		return NO_PERMISSION;
	if (*count < 2 || state(card))
		return state(card) ? state(card) : 7;
	now_us += 1000000;
	samples[0] = (struct sample){70, now_us, is("garbage") ? ~0u : 40, 5, 10, 20};
	samples[1] = (struct sample){71, since_us, 99, 0, 0, 0}; /* Of before, told again. */
	*count = is("garbage") ? 4000000000u : 2;
	return SUCCESS;
}
#endif

int PROCESSES(Compute)(void *card, unsigned *count, struct process *processes)
{
	if (*count < 2 || state(card))
		return state(card) ? state(card) : 7;
	processes[0] = (struct process){70, is("garbage") ? ~0ull : 1ull << 30};
	processes[1] = (struct process){72, ~0ull}; /* Not available. */
	*count = is("garbage") ? 4000000000u : 2;
	return SUCCESS;
}

int PROCESSES(Graphics)(void *card, unsigned *count, struct process *processes)
{
	if (*count < 2 || state(card))
		return state(card) ? state(card) : 7;
	processes[0] = (struct process){70, is("garbage") ? ~0ull : 1ull << 30};
	*count = 1;
	return SUCCESS;
}
