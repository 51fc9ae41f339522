// The link to Redis: one connection on a uv stream that runs the broker's operations as scripts,
// and comes up again by itself.
#ifndef LB_REDIS_UPLINK_H
#define LB_REDIS_UPLINK_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/core/backend.h"
#include "daemon/core/event.h"
#include "daemon/redis/keeper.h"
#include "proto/macros.h"

struct uplink;

struct uplink_options {
    struct redis_address address; // texts are copied by uplink_new()
    const char *prefix;           // lock keys are prefix + key; may be ""
    const char *host;             // this machine's name, part of the token, without ':'
    const char *instance;         // 128 random bits as hex, part of the token: a secret
    int64_t connect_timeout_ms;
    uint64_t seed; // jitter

    // Called with EVENT_BACKEND_UP, EVENT_BACKEND_DOWN or EVENT_BACKEND_OUTCOME; it must only post
    // the event (texts in it are borrowed until it returns to the loop) and not call back.
    void (*post)(void *context, const struct event *event);
    void *context;
};

// Makes an uplink on `loop`; it does not connect yet. Returns 0 or a negative errno.
int uplink_new(uv_loop_t *loop, const struct uplink_options *options,
               struct uplink **ret_uplink) LB_MUST_CHECK;

// Begins to connect, and goes on for ever. Every attempt that fails posts EVENT_BACKEND_DOWN.
void uplink_open(struct uplink *uplink);

// Tells how urgent the next attempt to connect is: the longest pause is 250 ms while leases live,
// 2 s else.
void uplink_set_urgent(struct uplink *uplink, bool urgent);

// Queues one operation; its outcome is posted exactly once. Nothing is written before
// uplink_flush(). With the link down the outcome RESULT_NOT_SENT is posted at once.
void uplink_submit(struct uplink *uplink, const struct backend_op *op);

// Writes what was queued, renewals joined into as few script calls as possible (at most 100 keys a
// call). Called once a loop turn.
void uplink_flush(struct uplink *uplink);

// Closes the connection and all handles; operations in flight get no outcome any more. The uplink
// frees itself once the loop has closed its handles.
void uplink_close(struct uplink *uplink);

// A few figures of the link itself, for `stats`.
struct uplink_figures {
    int64_t connects;
    int64_t connect_failures;
    int64_t commands;      // commands written
    int64_t renewal_calls; // of them, renewal scripts
    int64_t command_timeouts;
    int64_t refused; // error replies
    int64_t late_outcomes;
};
void uplink_get_figures(const struct uplink *uplink, struct uplink_figures *ret_figures);

#endif
