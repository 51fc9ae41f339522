// Watches over a command that runs under a lock: passes signals on, and ends the command before the
// lock can go to somebody else.
#ifndef LB_CLI_GUARD_H
#define LB_CLI_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/client.h"
#include "proto/macros.h"

struct guard_result {
    int status;    // of the command, as by waitpid()
    bool was_lost; // the lock was lost while it ran; it was told to stop
};

// Runs `command` (NULL-terminated) to its end under a grant, which stays the caller's. With
// `inherit` the command holds the broker's socket too. Returns 0 or a negative errno when the
// command could not be started.
int guard_run(struct lb_client *client, struct lb_grant *grant, char **command, bool inherit,
              struct guard_result *ret_result) LB_MUST_CHECK;

// How long before its deadline the broker tells a loss, for a lease of this ttl.
int64_t guard_margin_ms(int64_t ttl_ms);

// When the command has to be stopped if nothing is heard any more, for the last deadline told.
// `asked_ms` is when the broker was asked a question that it has not answered, or LB_NONE.
int64_t guard_stop_at_ms(int64_t deadline_ms, int64_t ttl_ms, int64_t asked_ms);

#endif
