// SPDX-License-Identifier: Apache-2.0
// Forks processes one by one, each of two threads that end at the same moment on two CPUs, and prints their numbers.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int ready;

static void end_together_on(int cpu)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 2)
        ;
    syscall(SYS_exit, 0); // Of this thread alone, without a lock that would order the two.
}

static void *second(void *unused)
{
    end_together_on(1);
    return unused;
}

int main(int count, char **arguments)
{
    for (int times = count > 1 ? atoi(arguments[1]) : 1; times > 0; times--) {
        pid_t pid = fork();

        if (pid == 0) {
            pthread_t thread;

            if (pthread_create(&thread, NULL, second, NULL))
                _exit(1);
            end_together_on(0);
        }
        printf("%d\n", pid);
        waitpid(pid, NULL, 0);
    }
    return 0;
}
