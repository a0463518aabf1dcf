// Makes chosen calls of the C library fail, for tests: loaded before it with LD_PRELOAD.
//
// A page that the test shares says which: the nth call of one kind on a file whose path holds one of some texts fails
// once, or writes only half of what it should. SQLite and Rust's standard library do their work through these calls.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, READ, WRITE, SYNC, TRUNCATE, RENAME, UNLINK, MKDIR, STAT, MAP };
enum { FAILS, SHORT, SHORT_THEN_FAILS };

// The same layout is written by `shim.rs`.
struct control {
    int armed, kind, mode, error, left, struck;
    char texts[256]; // One of these, each on a line, must be in the path.
    char place[256]; // The path at which it struck.
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SCRUBJAY_FAULTS");
    int file = name ? syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (page != MAP_FAILED) control = page;
}

static int is_meant(const char *path) {
    char text[256];
    for (const char *from = control->texts; *from;) {
        size_t length = strcspn(from, "\n");
        if (length == 0 || length >= sizeof text) return 0;
        memcpy(text, from, length);
        text[length] = 0;
        if (strstr(path, text)) return 1;
        from += length + (from[length] == '\n');
    }
    return 0;
}

// Returns whether this is the call that fails.
static int strikes_at(int kind, const char *path) {
    if (!control || !control->armed || control->kind != kind || !path || !is_meant(path)) return 0;
    if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    snprintf(control->place, sizeof control->place, "%s", path);
    __atomic_store_n(&control->struck, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static int strikes(int kind, int fd) {
    if (!control || !control->armed || control->kind != kind || fd < 0) return 0;
    char link[32], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strikes_at(kind, path);
}

static int fails(void) {
    errno = control->error;
    return -1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// Returns how many of `length` bytes are written; a negative number if the call fails.
static ssize_t cut(size_t length) {
    if (control->mode == FAILS || length < 2) return -1;
    if (control->mode == SHORT_THEN_FAILS) {
        control->mode = FAILS;
        __atomic_store_n(&control->left, 1, __ATOMIC_SEQ_CST);
    }
    return length / 2;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    if (strikes(WRITE, fd) && (ssize_t)(length = cut(length)) < 0) return fails();
    return real(fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    REAL(pwrite64);
    if (strikes(WRITE, fd) && (ssize_t)(length = cut(length)) < 0) return fails();
    return real(fd, bytes, length, at);
}

ssize_t writev(int fd, const struct iovec *slices, int count) {
    REAL(writev);
    return strikes(WRITE, fd) ? fails() : real(fd, slices, count);
}

ssize_t read(int fd, void *bytes, size_t length) {
    REAL(read);
    return strikes(READ, fd) ? fails() : real(fd, bytes, length);
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t at) {
    REAL(pread64);
    return strikes(READ, fd) ? fails() : real(fd, bytes, length, at);
}

int fsync(int fd) {
    REAL(fsync);
    return strikes(SYNC, fd) ? fails() : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return strikes(SYNC, fd) ? fails() : real(fd);
}

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    return strikes(TRUNCATE, fd) ? fails() : real(fd, length);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return strikes_at(RENAME, to) ? fails() : real(from, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return strikes_at(UNLINK, path) ? fails() : real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return strikes_at(MKDIR, path) ? fails() : real(path, mode);
}

int stat64(const char *path, struct stat64 *facts) {
    REAL(stat64);
    return strikes_at(STAT, path) ? fails() : real(path, facts);
}

int fstat64(int fd, struct stat64 *facts) {
    REAL(fstat64);
    return strikes(STAT, fd) ? fails() : real(fd, facts);
}

int fstat(int fd, struct stat *facts) {
    REAL(fstat);
    return strikes(STAT, fd) ? fails() : real(fd, facts);
}

int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict facts) {
    REAL(statx);
    int meant = *path ? strikes_at(STAT, path) : strikes(STAT, fd);
    return meant ? fails() : real(fd, path, flags, mask, facts);
}

void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
    REAL(mmap64);
    if (strikes(MAP, fd)) {
        fails();
        return MAP_FAILED;
    }
    return real(at, length, protection, flags, fd, offset);
}

#define OPENS(name, parameters, arguments) \
    int name parameters { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        return strikes_at(OPEN, path) ? fails() : real arguments; \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int directory, const char *path, int flags, ...), (directory, path, flags, mode))
OPENS(openat64, (int directory, const char *path, int flags, ...), (directory, path, flags, mode))
