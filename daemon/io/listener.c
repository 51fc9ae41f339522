// The listening socket. It is bound with no permissions at all, gets its group and mode, and only
// then listens, so that there is no moment at which the wrong client could connect. Two daemons
// that start at once are kept apart by a locked file beside the socket.
//
// It accepts by itself and not through libuv, which closes waiting connections when descriptors run
// out; here they stay in the backlog.
#include "daemon/io/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/base/log.h"

#define ACCEPTS_A_TURN  32
#define RESUME_AFTER_MS 100
#define LISTEN_BACKLOG  4096

static int problem(char *ret_problem, int error, const char *what, const char *path)
{
    (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX, "%s: %s", path, what);
    return -error;
}

static int problem_errno(char *ret_problem, const char *what, const char *path)
{
    int error = errno;

    (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX, "%s: %s: %s", path, what,
                   strerror(error));
    return -error;
}

static int inherit(struct listener *listener, char *ret_problem)
{
    int fd = SD_LISTEN_FDS_START;

    if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0)
        return problem(ret_problem, EINVAL, "is not a listening Unix stream socket",
                       "the socket passed by LISTEN_FDS");
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return problem_errno(ret_problem, "cannot be made non-blocking", "the inherited socket");
    listener->fd = fd;
    return 0;
}

static bool same_file(int fd, const char *path)
{
    struct stat ours;
    struct stat there;

    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

static void lock_path(const char *path, char ret_path[sizeof(((struct listener *)0)->path) + 8])
{
    (void)sprintf(ret_path, "%s.lock", path);
}

// The lock file is the first thing that is made, so what is wrong with the place shows here.
static int lock_file_problem(const char *path, const char *lock, char *ret_problem)
{
    int error = errno;
    bool is_missing = error == ENOENT || error == ENOTDIR;

    if (is_missing)
        (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX,
                       "cannot create the socket %s: there is no directory %.*s; create it, or "
                       "choose another place with --socket",
                       path, (int)(strrchr(path, '/') - path), path);
    else
        (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX,
                       "cannot create the socket %s: %s on its lock file %s; let this user write "
                       "there, or choose another place with --socket",
                       path, strerror(error), lock);
    return -error;
}

// A daemon that ends removes its lock file, so a lock may turn out to be on a file that is gone:
// then there is a newer one to be locked.
static int lock_out_others(struct listener *listener, char *ret_problem)
{
    char path[sizeof(listener->path) + 8];

    lock_path(listener->path, path);
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return lock_file_problem(listener->path, path, ret_problem);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            (void)close(fd);
            return problem(ret_problem, EADDRINUSE, "another lockbrokerd runs on this socket",
                           listener->path);
        }
        if (same_file(fd, path)) {
            listener->lock_fd = fd;
            return 0;
        }
        (void)close(fd);
    }
}

// Makes way for the new socket: removes one that nobody listens on.
static int clear_path(const char *path, const struct sockaddr_un *address, char *ret_problem)
{
    struct stat there;

    if (lstat(path, &there) < 0)
        return errno == ENOENT ? 0 : problem_errno(ret_problem, "cannot be looked at", path);
    if (!S_ISSOCK(there.st_mode))
        return problem(ret_problem, EEXIST, "exists and is not a socket", path);

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return problem_errno(ret_problem, "no socket to try it with", path);

    int r = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    bool is_stale = r < 0 && errno == ECONNREFUSED;

    (void)close(fd);
    if (!is_stale)
        return problem(ret_problem, EADDRINUSE, "somebody listens on this socket", path);
    if (unlink(path) < 0)
        return problem_errno(ret_problem, "the stale socket cannot be removed", path);
    return 0;
}

int listener_find_group(const char *name, gid_t *ret_gid)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    if (*name && !*end && number < (gid_t)-1) {
        *ret_gid = (gid_t)number;
        return 0;
    }

    const struct group *group = getgrnam(name);

    if (!group)
        return -ENOENT;
    *ret_gid = group->gr_gid;
    return 0;
}

static int set_group(const char *path, const char *group, char *ret_problem)
{
    gid_t gid;
    int error = ENOENT;

    if (listener_find_group(group, &gid) < 0) {
        (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX,
                       "socket_group: there is no group \"%s\"", group);
    } else if (chown(path, (uid_t)-1, gid) < 0) {
        error = errno;
        (void)snprintf(ret_problem, LISTENER_PROBLEM_BYTES_MAX,
                       "socket_group: %s cannot be given to the group \"%s\": %s", path, group,
                       strerror(error));
    } else {
        return 0;
    }
    return -error;
}

static int set_access(const char *path, mode_t mode, const char *group, char *ret_problem)
{
    int r = *group ? set_group(path, group, ret_problem) : 0;

    if (r < 0)
        return r;
    if (chmod(path, mode) < 0)
        return problem_errno(ret_problem, "its mode cannot be set", path);
    return 0;
}

static int bind_closed(int fd, const struct sockaddr_un *address)
{
    mode_t old_mask = umask(0777);
    int r = bind(fd, (const struct sockaddr *)address, sizeof(*address));

    (void)umask(old_mask);
    return r;
}

static int make_socket(struct listener *listener, mode_t mode, const char *group, char *ret_problem)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat made;

    memcpy(address.sun_path, listener->path, strlen(listener->path) + 1);

    int r = clear_path(listener->path, &address, ret_problem);

    if (r < 0)
        return r;
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0 || bind_closed(listener->fd, &address) < 0)
        return problem_errno(ret_problem, "cannot be bound", listener->path);
    if (lstat(listener->path, &made) < 0)
        return problem_errno(ret_problem, "cannot be looked at", listener->path);
    listener->device = made.st_dev;
    listener->inode = made.st_ino;
    r = set_access(listener->path, mode, group, ret_problem);
    if (r < 0)
        return r;
    if (listen(listener->fd, LISTEN_BACKLOG) < 0)
        return problem_errno(ret_problem, "cannot be listened on", listener->path);
    return 0;
}

int listener_open(struct listener *listener, const char *path, mode_t mode, const char *group,
                  char ret_problem[LISTENER_PROBLEM_BYTES_MAX])
{
    memset(listener, 0, sizeof(*listener));
    listener->fd = -1;
    listener->lock_fd = -1;
    if (sd_listen_fds(1) > 0)
        return inherit(listener, ret_problem);
    if (strlen(path) >= sizeof(listener->path))
        return problem(ret_problem, ENAMETOOLONG, "the path is too long for a socket", path);
    memcpy(listener->path, path, strlen(path) + 1);

    int r = lock_out_others(listener, ret_problem);

    if (r == 0)
        r = make_socket(listener, mode, group, ret_problem);
    if (r < 0)
        listener_close(listener);
    return r;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_resume(uv_timer_t *timer)
{
    struct listener *listener = timer->data;

    (void)uv_poll_start(&listener->poll, UV_READABLE, on_readable);
}

// Descriptors ran out. The clients wait in the backlog; whoever is connected already, and the
// backend, are served on.
static void pause_accepting(struct listener *listener, int error)
{
    if (!listener->is_pause_told)
        log_message(LOG_LEVEL_WARNING, "accept_paused", "%s", strerror(error));
    listener->is_pause_told = true;
    (void)uv_poll_stop(&listener->poll);
    (void)uv_timer_start(&listener->resume, on_resume, RESUME_AFTER_MS, 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            listener->is_pause_told = false;
            conn_table_accept(listener->conns, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            pause_accepting(listener, errno);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

int listener_start(struct listener *listener, uv_loop_t *loop, struct conn_table *conns)
{
    int r = uv_poll_init(loop, &listener->poll, listener->fd);

    if (r < 0)
        return r;
    (void)uv_timer_init(loop, &listener->resume);
    listener->conns = conns;
    listener->poll.data = listener;
    listener->resume.data = listener;
    return uv_poll_start(&listener->poll, UV_READABLE, on_readable);
}

void listener_stop(struct listener *listener)
{
    uv_close((uv_handle_t *)&listener->poll, NULL);
    uv_close((uv_handle_t *)&listener->resume, NULL);
}

static void remove_socket(const struct listener *listener)
{
    struct stat there;

    if (lstat(listener->path, &there) == 0 && there.st_dev == listener->device &&
        there.st_ino == listener->inode)
        (void)unlink(listener->path);
}

void listener_close(struct listener *listener)
{
    char path[sizeof(listener->path) + 8];

    if (listener->inode)
        remove_socket(listener);
    if (listener->lock_fd >= 0) {
        lock_path(listener->path, path);
        (void)unlink(path);
        (void)close(listener->lock_fd);
    }
    if (listener->fd >= 0)
        (void)close(listener->fd);
    listener->fd = -1;
    listener->lock_fd = -1;
}
