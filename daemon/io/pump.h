// The pump: the one place where events are stepped through the broker and their effects carried
// out. Callbacks post events or submit them; nothing in here is ever entered twice.
#ifndef LB_IO_PUMP_H
#define LB_IO_PUMP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/core/broker.h"
#include "daemon/io/conn.h"
#include "daemon/io/inbox.h"
#include "daemon/io/lateness.h"
#include "daemon/memory/memory_backend.h"
#include "daemon/redis/channel.h"
#include "daemon/redis/uplink.h"
#include "proto/macros.h"

// A grant too stale to be told is stepped back before anything else; one step makes at most
// EFFECTS_MAX of them, and stepping one back can make as many again.
#define PUMP_STALE_MAX (2 * EFFECTS_MAX)

struct pump {
    struct broker *broker;
    struct conn_table *conns;
    struct uplink *uplink; // one of the two backends is NULL
    struct memory_backend *memory;
    struct channel *channel;           // for its figures alone; NULL without Redis
    void (*after_turn)(void *context); // called once a loop turn, after all was stepped
    void *context;

    struct effects effects;
    struct inbox inbox;
    struct event stale[PUMP_STALE_MAX];
    size_t stale_count;
    bool running;
    size_t outcomes_due;  // operations whose outcome is not posted yet
    int64_t late_effects; // effects for sessions that had ended
    struct lateness lateness;
    int timer_fd;
    int64_t due_ms;   // when something is due next, INT64_MAX: nothing is
    int64_t armed_ms; // what the timer is set to: no later than that; INT64_MAX: off
    uv_poll_t timer;
    uv_check_t check;
    uv_prepare_t prepare;
};

// Makes a pump on `loop` for the broker; conns and one backend must be set before it runs. Returns
// 0 or a negative errno.
int pump_init(struct pump *pump, uv_loop_t *loop, struct broker *broker) LB_MUST_CHECK;

// Closes its handles; they are gone when the loop has run once more.
void pump_close(struct pump *pump);

// Frees what is left after the loop has ended.
void pump_deinit(struct pump *pump);

// Queues an event for this loop turn: for backends and for whoever may be inside a step. There is
// always room for one outcome an operation, for one end a connection and for a few others. The
// signature is that of the backends' post callback; `context` is the pump.
void pump_post(void *context, const struct event *event);

// Steps what is queued, then the event. Texts in the event need to live only until this returns.
// False when there is no memory for what may follow from it: then it was not, or not wholly,
// handled.
bool pump_submit(struct pump *pump, struct event *event) LB_MUST_CHECK;

// Steps what is queued and what is due, and arms the timer.
void pump_run(struct pump *pump);

#endif
