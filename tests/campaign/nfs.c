/* What a network filesystem does differently, for a process that loads this first and paths below a directory `storage`:
   what another process made is not there for a while, in lookups and in listings; a file that is unlinked while this
   process has it open becomes `.nfs...` until it is closed, so that its directory cannot be removed; nothing can be
   locked. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWN 65536
static ino_t own[OWN];

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Temporary files are not laid on a network filesystem. */
static int over_there(const char *path) {
    return path && path[0] == '/' && strstr(path, "/storage/") && !strstr(path, "/storage/.tmp/");
}

static int look(const char *path, struct stat *found) {
    return syscall(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW) == 0;
}

/* This process made it, or gave it its name. */
static void remember(const char *path) {
    struct stat found;
    if (over_there(path) && look(path, &found)) own[found.st_ino % OWN] = found.st_ino;
}

/* Another process made it a moment ago. */
static int too_new(const char *path) {
    struct stat found;
    struct statx born;
    struct timespec now;
    if (!over_there(path) || !look(path, &found) || own[found.st_ino % OWN] == found.st_ino) return 0;
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &born) != 0) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *lag = getenv("SHIM_LAG_S");
    double age = now.tv_sec - born.stx_btime.tv_sec + (now.tv_nsec - (double)born.stx_btime.tv_nsec) / 1e9;
    return age >= 0 && age < (lag ? atof(lag) : 0.0);
}

#define HIDE(path) if (too_new(path)) { errno = ENOENT; return -1; }

static int opened(const char *symbol, int at, const char *path, int flags, mode_t mode) {
    int made = (flags & O_CREAT) && over_there(path) && access(path, F_OK) != 0;
    if (!(flags & O_CREAT)) HIDE(path)
    int fd = symbol[4] == 'a' ? ((int (*)(int, const char *, int, mode_t))next(symbol))(at, path, flags, mode)
                              : ((int (*)(const char *, int, mode_t))next(symbol))(path, flags, mode);
    if (fd >= 0 && made) remember(path);
    return fd;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more); }
int open(const char *path, int flags, ...) { MODE return opened("open", 0, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened("open64", 0, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return opened("openat", at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return opened("openat64", at, path, flags, mode); }

#define STAT(name) int name(const char *path, struct stat *found) { HIDE(path) return ((int (*)(const char *, struct stat *))next(#name))(path, found); }
STAT(stat) STAT(lstat)
int stat64(const char *path, struct stat64 *found) { HIDE(path) return ((int (*)(const char *, struct stat64 *))next("stat64"))(path, found); }
int lstat64(const char *path, struct stat64 *found) { HIDE(path) return ((int (*)(const char *, struct stat64 *))next("lstat64"))(path, found); }

DIR *opendir(const char *path) {
    if (too_new(path)) { errno = ENOENT; return NULL; }
    return ((DIR * (*)(const char *))next("opendir"))(path);
}

struct dirent64 *readdir64(DIR *directory) {
    struct dirent64 *entry;
    char place[PATH_MAX], link[64], path[PATH_MAX + 300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(directory));
    ssize_t length = readlink(link, place, sizeof place - 1);
    while ((entry = ((struct dirent64 * (*)(DIR *))next("readdir64"))(directory)) != NULL) {
        if (length <= 0) return entry;
        place[length] = 0;
        snprintf(path, sizeof path, "%s/%s", place, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || !too_new(path)) return entry;
    }
    return NULL;
}
struct dirent *readdir(DIR *directory) { return (struct dirent *)readdir64(directory); }

int mkdir(const char *path, mode_t mode) {
    int failed = ((int (*)(const char *, mode_t))next("mkdir"))(path, mode);
    int error = errno;
    if (!failed || error == EEXIST) remember(path); /* the server's answer is believed */
    errno = error;
    return failed;
}

int rename(const char *from, const char *to) {
    int failed = ((int (*)(const char *, const char *))next("rename"))(from, to);
    if (!failed) remember(to);
    return failed;
}

/* Whether this process has that file open. */
static int is_open(const struct stat *wanted) {
    for (int fd = 3; fd < 512; fd++) {
        struct stat found;
        if (fstat(fd, &found) == 0 && found.st_ino == wanted->st_ino && found.st_dev == wanted->st_dev) return 1;
    }
    return 0;
}

int unlink(const char *path) {
    struct stat found;
    const char *slash = strrchr(path, '/');
    if (over_there(path) && look(path, &found) && S_ISREG(found.st_mode) && found.st_nlink == 1 && is_open(&found)
        && strncmp(slash, "/.nfs", 5) != 0) {
        char silly[PATH_MAX];
        snprintf(silly, sizeof silly, "%.*s/.nfs%016lx", (int)(slash - path), path, (unsigned long)found.st_ino);
        return ((int (*)(const char *, const char *))next("rename"))(path, silly);
    }
    return ((int (*)(const char *))next("unlink"))(path);
}

int close(int fd) {
    char link[64], path[PATH_MAX];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int failed = ((int (*)(int))next("close"))(fd);
    if (length > 0) {
        path[length] = 0;
        if (strstr(path, "/.nfs") && over_there(path) && look(path, &found) && !is_open(&found))
            ((int (*)(const char *))next("unlink"))(path);
    }
    return failed;
}

int flock(int fd, int how) {
    errno = ENOLCK;
    return -1;
}
