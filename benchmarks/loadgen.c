// SPDX-License-Identifier: Apache-2.0
// Makes the load that a benchmark is run under, and ends with the program that started it.
//
//   loadgen procs N [BUSY]        N processes, of which BUSY work a little ten times a second and the others sleep
//   loadgen threads P T [BUSY]    P processes of T threads each, of which BUSY work so
//   loadgen forks N SECONDS [CMD…]   N programs (/bin/true) started and ended, evenly over that time
//   loadgen storm RATE SECONDS    so many a second of the smallest program there is: this one, which ends at once
//   loadgen memory N KIB [SCORE [FILE]]   N processes that write here and there in so much memory, each with that
//                                 oom_score_adj (0), in the control group of that cgroup.procs; who is killed is replaced
//
// The first two say "ready N" on standard output when all N tasks are there, and stay until killed; the last stays, too,
// and says "ready 0" at once, since there may be no memory for all. The others say
// "ready 0" before they begin, "made N" when all have ended, and end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S (3 * 3600) // Should nobody end it.
#define PERIOD_NS 100000000L
#define STACK_BYTES 65536
#define SECOND_NS 1000000000L
#define WORK_ROUNDS 20000 // About 10 µs.
#define STARTERS 2        // One alone makes about two thousand programs a second.
#define PAGE_BYTES 4096
#define PAUSE_NS 100000000L // Before one that was killed is replaced.

static int ready_pipe[2];

static void fail(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void until(struct timespec *at, long later_ns) {
    at->tv_nsec += later_ns % SECOND_NS;
    at->tv_sec += later_ns / SECOND_NS + at->tv_nsec / SECOND_NS;
    at->tv_nsec %= SECOND_NS;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL) == EINTR)
        ;
}

static void live(long phase_ns) { // Negative: sleep for ever.
    struct timespec at;
    volatile unsigned long sum = 0;
    if (write(ready_pipe[1], "", 1) != 1) _exit(1);
    if (phase_ns < 0)
        for (;;) pause();
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (until(&at, phase_ns);; until(&at, PERIOD_NS))
        for (int round = 0; round < WORK_ROUNDS; round++) sum += round;
}

static void *live_as_thread(void *phase_ns) {
    live((long)phase_ns);
    return NULL;
}

// The busy ones come first; each has its own part of the period.
static long phase(long number, long busy) { return number < busy ? PERIOD_NS / busy * number : -1; }

static void stand(long processes, long threads, long busy) {
    if (pipe(ready_pipe)) fail("pipe");
    for (long process = 0; process < processes; process++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, STACK_BYTES);
        for (long thread = 1; thread < threads; thread++) {
            pthread_t made;
            if ((errno = pthread_create(&made, &small, live_as_thread, (void *)phase(process * threads + thread, busy))))
                fail("pthread_create");
        }
        live(phase(process * threads, busy));
    }
    close(ready_pipe[1]); // Should one fail, the pipe ends before all have answered.
    long seen = 0;
    char answers[4096];
    while (seen < processes * threads) {
        ssize_t count = read(ready_pipe[0], answers, sizeof answers);
        if (count <= 0) fail("not all tasks came to be");
        seen += count;
    }
    printf("ready %ld\n", seen);
    fflush(stdout);
    for (;;) pause();
}

static void start(char **command) {
    extern char **environ;
    pid_t child;
    if ((errno = posix_spawn(&child, command[0], NULL, NULL, command, environ))) fail(command[0]);
}

static void spread(long count, double seconds, char **command) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (long made = 0; made < count; made++) {
        start(command);
        until(&at, (long)(seconds * SECOND_NS / count));
    }
    while (wait(NULL) > 0 || errno == EINTR)
        ; // SIGCHLD is ignored: this waits until the last one is gone.
}

static void make(long count, double seconds, char **command, int starters) {
    prctl(PR_SET_NAME, "load-maker"); // So that it is not taken for one of what it makes.
    printf("ready 0\n");
    fflush(stdout);
    for (int starter = 1; starter < starters; starter++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        spread(count / starters, seconds, command);
        _exit(0);
    }
    spread(count - count / starters * (starters - 1), seconds, command);
    printf("made %ld\n", count);
}

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
    close(file);
}

static void hog(pid_t maker, long kib, const char *score, const char *group) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != maker) _exit(0); // It ended before it could be said that this is to end with it.
    put("/proc/self/oom_score_adj", score);
    if (group) put(group, "0");
    long pages = kib * 1024 / PAGE_BYTES;
    unsigned long random = getpid() * 2654435761UL + 1;
    char *memory = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    for (long page = 0;; page++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        unsigned long *words = (unsigned long *)(memory + (page < pages ? page : random % pages) * PAGE_BYTES);
        // Half a page of noise: swap that is compressed is to have something to do.
        for (int word = 0; page < pages && word < PAGE_BYTES / 16; word++)
            words[word] = random * (word + 1) * 0x9E3779B97F4A7C15UL;
        words[0] += random;
    }
}

static void fill(long count, long kib, const char *score, const char *group) {
    pid_t maker = getpid();
    prctl(PR_SET_NAME, "load-maker");
    signal(SIGCHLD, SIG_DFL);
    printf("ready 0\n");
    fflush(stdout);
    for (long made = 0;; made++) {
        struct timespec pause = {0, PAUSE_NS};
        if (made >= count) {
            if (wait(NULL) < 0) fail("wait");
            nanosleep(&pause, NULL);
        }
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (!child) {
            prctl(PR_SET_NAME, "load-memory");
            hog(maker, kib, score, group);
        }
    }
}

int main(int count, char **word) {
    if (count == 2 && !strcmp(word[1], "end")) _exit(0);
    if (count < 3) {
        fprintf(stderr, "loadgen: expected 'procs N', 'threads P T', 'forks N SECONDS', 'storm RATE SECONDS' or "
                        "'memory N KIB'\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN); // Nobody waits for the children: none stays as a zombie.
    alarm(LIMIT_S);
    long first = atol(word[2]), second = count > 3 ? atol(word[3]) : 0;
    if (!strcmp(word[1], "procs")) stand(first, 1, second);
    if (!strcmp(word[1], "threads")) stand(first, second, count > 4 ? atol(word[4]) : 0);
    if (!strcmp(word[1], "forks")) make(first, second, count > 4 ? word + 4 : (char *[]){"/bin/true", NULL}, 1);
    if (!strcmp(word[1], "memory")) fill(first, second, count > 4 ? word[4] : "0", count > 5 ? word[5] : NULL);
    if (!strcmp(word[1], "storm")) {
        char own[4096];
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
        if (length < 0) fail("/proc/self/exe");
        own[length] = 0;
        make(first * second, second, (char *[]){own, "end", NULL}, STARTERS);
    }
    return 0;
}
