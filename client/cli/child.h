// The command that runs under the lock.
#ifndef LB_CLI_CHILD_H
#define LB_CLI_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/cli/terminal.h"
#include "proto/macros.h"

struct child_plan {
    char **command;                       // NULL-terminated
    int broker_fd;                        // inherited by the command; -1: not
    struct terminal *terminal;            // given to the command before it starts; NULL: not
    const sigset_t *signal_mask;          // the mask that the command gets
    const struct sigaction *child_action; // what it gets for SIGCHLD
};

// Starts the command in a process group of its own, named by its pid, with a parent-death signal.
// All signals must be blocked. When it cannot be run, the child says so and ends with 126 or 127,
// as a shell does. Returns 0 or a negative errno.
int child_spawn(const struct child_plan *plan, pid_t *ret_pid) LB_MUST_CHECK;

#endif
