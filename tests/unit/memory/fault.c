// Stands in front of the calls, by the linker's --wrap.
#include "tests/unit/memory/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __real_fstat(int fd, struct stat *status);
int __wrap_fstat(int fd, struct stat *status);
int __real_ftruncate(int fd, off_t length);
int __wrap_ftruncate(int fd, off_t length);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
ssize_t __real_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset);

static const char *failing = "";
static int failing_errno;
static int calls_before;
static int times;

void fault_call(const char *call, int error, int first)
{
    failing = call;
    failing_errno = error;
    calls_before = first - 1;
    times = error == EINTR ? 3 : 1;
}

static bool comes_true(const char *call)
{
    if (times == 0 || strcmp(call, failing) != 0 || calls_before-- > 0)
        return false;
    times--;
    errno = failing_errno;
    return true;
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return comes_true("fchmod") ? -1 : __real_fchmod(fd, mode);
}

int __wrap_fstat(int fd, struct stat *status)
{
    return comes_true("fstat") ? -1 : __real_fstat(fd, status);
}

int __wrap_ftruncate(int fd, off_t length)
{
    return comes_true("ftruncate") ? -1 : __real_ftruncate(fd, length);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return comes_true("open") ? -1 : __real_open(path, flags, mode);
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset)
{
    if (!comes_true("pread"))
        return __real_pread(fd, bytes, size, offset);
    return failing_errno ? -1 : __real_pread(fd, bytes, size / 2, offset);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    if (!comes_true("pwrite"))
        return __real_pwrite(fd, bytes, size, offset);
    return failing_errno ? -1 : __real_pwrite(fd, bytes, size / 2, offset);
}
