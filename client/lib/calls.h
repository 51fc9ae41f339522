// What a connection has asked and not yet been answered. Pure: it matches answers to calls by id,
// and knows neither sockets nor clocks.
#ifndef LB_CLIENT_CALLS_H
#define LB_CLIENT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "client/lib/lockbroker.h"
#include "proto/incoming.h"
#include "proto/macros.h"
#include "proto/message.h"

// An event for the program, embedded in what it is about so that queueing one cannot fail.
struct queued_event {
    TAILQ_ENTRY(queued_event) entry;
    bool is_queued;
    struct lb_event event;
    struct call *call; // LB_EVENT_ANSWER: freed when the event is taken
};

TAILQ_HEAD(event_queue, queued_event);

// Who takes a call's answer.
enum call_use {
    CALL_WAITED,    // a blocking call looks for it
    CALL_STARTED,   // the program gets it as an event
    CALL_ABANDONED, // nobody: a grant that it brings is given back
};

struct call {
    TAILQ_ENTRY(call) entry;
    int64_t id;
    enum op op;
    enum call_use use;
    bool wants_line;        // keep the line as it was received
    int64_t sent_ms;        // when it was made, CLOCK_BOOTTIME
    struct lb_grant *grant; // acquire: owned, made ready for the answer; check, extend: borrowed

    bool is_answered;
    int result;                 // 0, an LB_E_*, or the negative errno that ended the connection
    struct incoming *incoming;  // the answer; NULL when `result` is negative
    char *line;                 // with wants_line, NUL-terminated
    struct queued_event queued; // CALL_STARTED
};

TAILQ_HEAD(call_list, call);

struct calls {
    struct call_list pending;
    int64_t last_id;
};

void calls_init(struct calls *calls);

// Makes a pending call with an id of its own. NULL when there is no memory.
struct call *calls_add(struct calls *calls, enum op op, enum call_use use) LB_MUST_CHECK;

// The pending call with this id, or NULL.
struct call *calls_find(const struct calls *calls, const struct request_id *id);

// The oldest pending call, or NULL.
struct call *calls_first(const struct calls *calls);

// Puts an answer into a pending call, which then is no longer pending and belongs to the caller.
// Takes over `incoming`, which is NULL with a negative `result`.
void calls_answer(struct calls *calls, struct call *call, int result, struct incoming *incoming);

// No pending call refers to this grant any more.
void calls_forget_grant(struct calls *calls, const struct lb_grant *grant);

// Frees a call, pending or answered, with its answer but not its grant. NULL is fine.
void calls_free(struct calls *calls, struct call *call);

// Gives a parsed line back. NULL is fine.
void calls_free_incoming(struct incoming *incoming);

// The result of an answer: 0, or the LB_E_* of its error.
int calls_result(const struct incoming *incoming);

#endif
