/* A board whose clock is wrong, or whose files are slow, for one process.
 *
 * CLOCK_OFFSET_FILE: a file with the seconds that the real-time clock is off.
 * SLOW_READ: a word; a read of a path that contains it takes 900 ms longer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The number in the file that the variable names; 0 without one. */
static long long number(const char *variable) {
    const char *path = getenv(variable);
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return atoll(text);
}

static void pass(long long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, id, now);
    if (result == 0 && id == CLOCK_REALTIME)
        now->tv_sec += number("CLOCK_OFFSET_FILE");
    return (int)result;
}

static void wait_for(int file) {
    const char *word = getenv("SLOW_READ");
    char link[32], path[4096] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (word && readlink(link, path, sizeof path - 1) > 0 && strstr(path, word))
        pass(900);
}

ssize_t read(int file, void *bytes, size_t length) {
    wait_for(file);
    return syscall(SYS_read, file, bytes, length);
}

ssize_t pread64(int file, void *bytes, size_t length, off64_t offset) {
    wait_for(file);
    return syscall(SYS_pread64, file, bytes, length, offset);
}
