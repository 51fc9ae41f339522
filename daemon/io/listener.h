// The Unix socket that clients connect to: made here, or inherited from systemd.
#ifndef LB_IO_LISTENER_H
#define LB_IO_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/io/conn.h"
#include "proto/macros.h"

struct listener {
    struct conn_table *conns;
    int fd;
    int lock_fd;  // -1: inherited
    dev_t device; // of the socket file that was made
    ino_t inode;
    char path[108];
    uv_poll_t poll;
    uv_timer_t resume; // accepting goes on after descriptors ran out
    bool is_pause_told;
};

#define LISTENER_PROBLEM_BYTES_MAX 512

// The group of that name or number. Returns 0 or -ENOENT.
int listener_find_group(const char *name, gid_t *ret_gid) LB_MUST_CHECK;

// Takes the socket that systemd passed, if there is one, or makes one at `path`: a file left by a
// daemon that died is replaced, one in use is refused. Nobody can connect before owner and mode are
// set. `group` is a name or number, "" for none. Returns 0, or a negative errno and a sentence in
// `ret_problem`.
int listener_open(struct listener *listener, const char *path, mode_t mode, const char *group,
                  char ret_problem[LISTENER_PROBLEM_BYTES_MAX]) LB_MUST_CHECK;

// Begins to accept. Returns 0 or a negative errno.
int listener_start(struct listener *listener, uv_loop_t *loop,
                   struct conn_table *conns) LB_MUST_CHECK;

// Stops accepting and closes the handles; to be called if listener_start() succeeded.
void listener_stop(struct listener *listener);

// Closes the socket, and removes its file if it was made here and is still the same.
void listener_close(struct listener *listener);

#endif
