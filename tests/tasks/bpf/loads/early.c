/* SPDX-License-Identifier: Apache-2.0 */
/* A process whose first thread ends 0.2 s before its last. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *stay(void *unused)
{
    usleep(200000);
    exit(5);
}

int main(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, stay, NULL);
    pthread_exit(NULL);
}
