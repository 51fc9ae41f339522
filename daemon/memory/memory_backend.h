// The broker's operations on a table in this process: `backend = memory://`, single-host locks
// with no Redis. Outcomes are posted before memory_backend_submit() returns.
//
// A crash of the daemon loses the table while clients may still rely on their grants, so the
// largest expiry ever set is kept in a small file with the boot id, and after a crash nothing is
// granted before it. A clean end (nothing held) removes the file.
#ifndef LB_MEMORY_MEMORY_BACKEND_H
#define LB_MEMORY_MEMORY_BACKEND_H

#include <stdint.h>

#include "daemon/core/backend.h"
#include "daemon/core/event.h"
#include "proto/macros.h"

struct memory_backend;

struct memory_backend_options {
    const char *state_path; // the file beside the socket; NULL: keep none (tests, simulator)
    int64_t ttl_max_ms;     // how long a state file that cannot be understood blocks
    int64_t (*now_ms)(void *context);  // CLOCK_BOOTTIME
    int64_t (*wall_us)(void *context); // the wall clock in microseconds: the floor of fences
    void (*post)(void *context, const struct event *event); // as in uplink_options
    void *context;
};

// Makes the table. With a state file left by a crash in this boot, *ret_blocked_until_ms is the
// time before which nothing may be granted, else 0. A state file that cannot be understood counts
// as one that was written this moment, for a lock of ttl_max_ms; one that says more than any lock
// of any broker can take (an hour and 1 %) counts as saying that. Returns 0 or a negative
// errno: also when the file cannot be opened for writing, is a link or another user's.
int memory_backend_new(const struct memory_backend_options *options, int64_t *ret_blocked_until_ms,
                       struct memory_backend **ret_backend) LB_MUST_CHECK;

// Frees the table and, when no key in it is alive any more, removes the state file. NULL is fine.
void memory_backend_free(struct memory_backend *backend);

// Posts EVENT_BACKEND_UP. (While blocked by a crash it is up, but every acquire is answered
// RESULT_QUARANTINED until the time is over.)
void memory_backend_open(struct memory_backend *backend);

// Carries one operation out and posts its outcome.
void memory_backend_submit(struct memory_backend *backend, const struct backend_op *op);

#endif
