// flock(2) on a file: what the kernel alone needs to hand a lock on within one machine. The file is
// beside the socket of Redis, which is in a private folder.
#include "tests/bench/bench_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

struct flock_user {
    int fd;
};

static void *flock_open(const struct bench *bench, int contender)
{
    struct flock_user *user = memory(NULL, sizeof(*user));
    const char *folder = getenv("TMPDIR");
    const char *slash = bench->redis ? strrchr(bench->redis, '/') : NULL;
    char key[KEY_SIZE];
    char path[1024];

    key_name(bench, contender, key);
    for (char *c = key; *c; c++)
        if (*c == '/')
            *c = '_';
    if (slash)
        (void)snprintf(path, sizeof(path), "%.*s/%s.flock", (int)(slash - bench->redis),
                       bench->redis, key);
    else
        (void)snprintf(path, sizeof(path), "%s/%s.flock", folder ? folder : "/tmp", key);
    user->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (user->fd < 0)
        die(path);
    return user;
}

static const char *flock_acquire(void *self)
{
    const struct flock_user *user = self;
    int r;

    do
        r = flock(user->fd, LOCK_EX);
    while (r != 0 && errno == EINTR);
    return r == 0 ? NULL : strerror(errno);
}

static const char *flock_release(void *self)
{
    const struct flock_user *user = self;

    return flock(user->fd, LOCK_UN) == 0 ? NULL : strerror(errno);
}

const struct blocking_peer flock_peer = {"flock", flock_open, flock_acquire, flock_release};
