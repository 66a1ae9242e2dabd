// SPDX-License-Identifier: Apache-2.0
// Makes a disk slow or faulty for one program: preloaded (ld.so(8)), it looks into a small file before each
// write, fsync, rename and open for writing below a folder, or before each read of a segment there, and fails
// or waits as that file says.
//
//   FAULTY_BELOW    the folder
//   FAULTY_CONTROL  the file: "ERRNO PERCENT FSYNC_MS READS", all numbers; nothing happens where it is not there.
//                   READS 1: reads fail, else all others.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int below(const char *path) {
    const char *folder = getenv("FAULTY_BELOW");
    return folder && path && !strncmp(path, folder, strlen(folder));
}

static int descriptor_below(int descriptor, const char *ending) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    size_t tail = strlen(ending);
    return below(path) && (size_t)length >= tail && !strcmp(path + length - tail, ending);
}

// Whether the call is to fail; errno is set then.
static int fails(int is_sync, int is_read) {
    static ssize_t (*real_read)(int, void *, size_t);
    static int (*real_open)(const char *, int, ...);
    if (!real_read) {
        real_read = dlsym(RTLD_NEXT, "read");
        real_open = dlsym(RTLD_NEXT, "open");
    }
    const char *control = getenv("FAULTY_CONTROL");
    char said[64] = "";
    int number = 0, percent = 0, wait_ms = 0, reads = 0, descriptor;
    if (!control || (descriptor = real_open(control, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    real_read(descriptor, said, sizeof said - 1);
    close(descriptor);
    sscanf(said, "%d %d %d %d", &number, &percent, &wait_ms, &reads);
    if (is_sync && wait_ms) {
        struct timespec pause = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!number || reads != is_read || now.tv_nsec / 1000 % 100 >= percent)
        return 0;
    errno = number;
    return 1;
}

#define REAL(name, type) static __typeof__(type) real; if (!real) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

ssize_t write(int descriptor, const void *bytes, size_t count) {
    REAL("write", ssize_t (*)(int, const void *, size_t));
    return descriptor_below(descriptor, "") && fails(0, 0) ? -1 : real(descriptor, bytes, count);
}

// A read of the control file itself is none of a segment, so this does not call itself for ever.
ssize_t read(int descriptor, void *bytes, size_t count) {
    REAL("read", ssize_t (*)(int, void *, size_t));
    return descriptor_below(descriptor, ".h5") && fails(0, 1) ? -1 : real(descriptor, bytes, count);
}

ssize_t pread(int descriptor, void *bytes, size_t count, off_t offset) {
    REAL("pread", ssize_t (*)(int, void *, size_t, off_t));
    return descriptor_below(descriptor, ".h5") && fails(0, 1) ? -1 : real(descriptor, bytes, count, offset);
}

ssize_t pread64(int descriptor, void *bytes, size_t count, off64_t offset) {
    REAL("pread64", ssize_t (*)(int, void *, size_t, off64_t));
    return descriptor_below(descriptor, ".h5") && fails(0, 1) ? -1 : real(descriptor, bytes, count, offset);
}

int fsync(int descriptor) {
    REAL("fsync", int (*)(int));
    return descriptor_below(descriptor, "") && fails(1, 0) ? -1 : real(descriptor);
}

int rename(const char *from, const char *to) {
    REAL("rename", int (*)(const char *, const char *));
    return below(to) && fails(0, 0) ? -1 : real(from, to);
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    return (flags & (O_WRONLY | O_RDWR)) && below(path) && fails(0, 0) ? -1 : real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    REAL("open", int (*)(const char *, int, ...));
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened(real, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    REAL("open64", int (*)(const char *, int, ...));
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened(real, path, flags, mode);
}
