// Operations on their way: queued, written, answered. It turns them into commands on a wire and
// replies into outcomes, and sees to it that each operation gets exactly one outcome, whatever
// becomes of the connection.
#ifndef LB_REDIS_EXCHANGE_H
#define LB_REDIS_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/core/event.h"
#include "daemon/redis/command.h"
#include "daemon/redis/gate.h"
#include "daemon/redis/script.h"
#include "daemon/redis/token.h"
#include "daemon/redis/uplink.h"
#include "daemon/redis/wire.h"

STAILQ_HEAD(flight_list, flight);

struct exchange {
    struct token_maker maker;
    struct command_server server;
    const char *prefix; // borrowed
    void (*post)(void *context, const struct event *event);
    void *context;

    struct wire *wire;           // NULL while the link is down
    struct flight_list renewals; // queued
    struct flight_list others;   // queued
    struct flight_list sent;     // in the order of their replies
    int64_t soonest_ms;          // no later than when the first of `sent` must be answered
    struct uplink_figures figures;
    struct gate refusals[SCRIPT_COUNT];
};

// Begins without a wire.
void exchange_init(struct exchange *exchange);

// The link is up: operations go to this wire from now on.
void exchange_start(struct exchange *exchange, struct wire *wire, const struct script_names *names);

// The link is down: every operation gets its outcome, unknown if any of its bytes were written.
// Call it before the wire is closed.
void exchange_fail(struct exchange *exchange);

// Drops everything without outcomes.
void exchange_deinit(struct exchange *exchange);

// Takes an operation in, or posts its outcome at once when it cannot be sent.
void exchange_submit(struct exchange *exchange, const struct backend_op *op);

// Formats what is queued onto the wire; the wire is not flushed.
void exchange_send(struct exchange *exchange);

// Takes the next reply in. Returns true when the link is still good, else false and why.
bool exchange_take(struct exchange *exchange, const struct resp *reply,
                   const char **ret_reason) LB_MUST_CHECK;

// When the first of the commands written must be answered, CLOCK_BOOTTIME in ms; INT64_MAX when
// there is none. It looks at all of them; `soonest_ms` is a bound that costs nothing.
int64_t exchange_deadline(struct exchange *exchange);

#endif
