// The signals of `lockbroker run`: taken one by one from a descriptor while the command runs.
#ifndef LB_CLI_GUARD_SIGNALS_H
#define LB_CLI_GUARD_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

#include "proto/macros.h"

struct guard_signals {
    int fd;
    sigset_t old_mask; // what the command gets
    struct sigaction old_child_action;
};

// Blocks and collects every signal that can be caught, but for those that were ignored when we were
// started (they stay so, for the command too) and the faults of this process itself. They stay
// blocked after guard_signals_deinit(). Returns 0 or a negative errno.
int guard_signals_init(struct guard_signals *signals) LB_MUST_CHECK;
void guard_signals_deinit(struct guard_signals *signals);

// Takes the next signal, without waiting. False when there is none.
bool guard_signals_next(const struct guard_signals *signals, struct signalfd_siginfo *ret_info);

// False for what the kernel sends us for our own doings.
bool guard_signals_is_for_command(const struct signalfd_siginfo *info);

// Stops this process, with the others of its group or alone, until it is continued. Does nothing
// when a SIGCONT has come already: stopping would throw that away.
void guard_signals_stop_self(int signal, bool with_group);

#endif
