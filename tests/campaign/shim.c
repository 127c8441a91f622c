/* What a bad machine does, for a process that loads this first: a disk that is slow to sync, a wall clock that jumps by
   hours several times a second, a network filesystem without locks. Chosen by the environment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static void wait_for_disk(void) {
    const char *ms = getenv("SHIM_SYNC_MS");
    if (ms) {
        struct timespec left = {atol(ms) / 1000, atol(ms) % 1000 * 1000000L};
        while (nanosleep(&left, &left)) ;
    }
}

int fsync(int fd) {
    wait_for_disk();
    return ((int (*)(int))next("fsync"))(fd);
}

int fdatasync(int fd) {
    wait_for_disk();
    return ((int (*)(int))next("fdatasync"))(fd);
}

int flock(int fd, int how) {
    if (getenv("SHIM_NO_LOCKS")) {
        errno = ENOLCK;
        return -1;
    }
    return ((int (*)(int, int))next("flock"))(fd, how);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = next("clock_gettime");
    int failed = real(clock, now);
    if (clock == CLOCK_REALTIME && getenv("SHIM_JUMPS")) {
        unsigned tick = now->tv_sec * 14 + now->tv_nsec / 70000000L;
        now->tv_sec += (long)((tick * 2654435761u >> 8) % 20000) - 10000;
    }
    return failed;
}
