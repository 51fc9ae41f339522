// Stands in front of the calls, by the linker's --wrap.
#include "tests/unit/io/fault_call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <uv.h>

static const char *failing = "";
static int failing_errno;
static int calls_before;
static int times_left;
static const char *awaited = "";
static void (*run_before)(void);
static const char *host_name;

void fault_call_fail(const char *call, int error, int first, int times)
{
    failing = call;
    failing_errno = error;
    calls_before = first - 1;
    times_left = times;
}

int fault_call_left(void)
{
    return times_left;
}

void fault_call_before(const char *call, void (*before)(void))
{
    awaited = call;
    run_before = before;
}

void fault_call_host(const char *name)
{
    host_name = name;
}

static bool fails(const char *call)
{
    if (run_before && strcmp(call, awaited) == 0) {
        void (*before)(void) = run_before;

        run_before = NULL;
        before();
    }
    if (times_left == 0 || strcmp(call, failing) != 0)
        return false;
    if (calls_before > 0) {
        calls_before--;
        return false;
    }
    times_left--;
    errno = failing_errno;
    return true;
}

// A call of the kernel, of which -1 says that errno tells more.
#define KERNEL(type, call, parameters, arguments)                                                  \
    type __real_##call parameters;                                                                 \
    type __wrap_##call parameters;                                                                 \
    type __wrap_##call parameters                                                                  \
    {                                                                                              \
        return fails(#call) ? -1 : __real_##call arguments;                                        \
    }

// One of libuv, which returns the negative errno.
#define LIBUV(call, parameters, arguments)                                                         \
    int __real_##call parameters;                                                                  \
    int __wrap_##call parameters;                                                                  \
    int __wrap_##call parameters                                                                   \
    {                                                                                              \
        return fails(#call) ? -errno : __real_##call arguments;                                    \
    }

KERNEL(int, accept4, (int fd, struct sockaddr *name, socklen_t *size, int flags),
       (fd, name, size, flags))
KERNEL(int, bind, (int fd, const struct sockaddr *name, socklen_t size), (fd, name, size))
KERNEL(int, chmod, (const char *path, mode_t mode), (path, mode))
KERNEL(int, chown, (const char *path, uid_t owner, gid_t group), (path, owner, group))
KERNEL(int, flock, (int fd, int operation), (fd, operation))
KERNEL(int, fstat, (int fd, struct stat *status), (fd, status))
KERNEL(int, getentropy, (void *bytes, size_t length), (bytes, length))
KERNEL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),
       (fd, level, name, value, size))
KERNEL(int, listen, (int fd, int backlog), (fd, backlog))
KERNEL(int, lstat, (const char *path, struct stat *status), (path, status))
KERNEL(ssize_t, sendto,
       (int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to,
        socklen_t size),
       (fd, bytes, length, flags, to, size))
KERNEL(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
KERNEL(int, timerfd_create, (int clock, int flags), (clock, flags))
KERNEL(int, unlink, (const char *path), (path))

LIBUV(uv_pipe_open, (uv_pipe_t * pipe, uv_file fd), (pipe, fd))
LIBUV(uv_poll_init, (uv_loop_t * loop, uv_poll_t *poll, int fd), (loop, poll, fd))
LIBUV(uv_read_start, (uv_stream_t * stream, uv_alloc_cb on_alloc, uv_read_cb on_read),
      (stream, on_alloc, on_read))
LIBUV(uv_try_write, (uv_stream_t * stream, const uv_buf_t *bufs, unsigned count),
      (stream, bufs, count))
LIBUV(uv_write,
      (uv_write_t * write, uv_stream_t *stream, const uv_buf_t *bufs, unsigned count,
       uv_write_cb on_written),
      (write, stream, bufs, count, on_written))

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);

int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;
    int argument;

    va_start(arguments, command);
    argument = va_arg(arguments, int);
    va_end(arguments);
    return fails("fcntl") ? -1 : __real_fcntl(fd, command, argument);
}

int __real_gethostname(char *name, size_t size);
int __wrap_gethostname(char *name, size_t size);

int __wrap_gethostname(char *name, size_t size)
{
    if (fails("gethostname"))
        return -1;
    if (!host_name)
        return __real_gethostname(name, size);
    (void)snprintf(name, size, "%s", host_name);
    return 0;
}
