// The pending calls of a connection. Pure: no socket, no clock. Ids are counted up and never used
// twice, so that a late answer can never be taken for that of a younger call.
#include "client/lib/calls.h"

#include <stdlib.h>

#define X(symbol, name, text)                                                                      \
    _Static_assert((int)ERROR_##symbol == (int)LB_E_##symbol, "number of LB_E_" #symbol);
#include "proto/errors.def"
#undef X

void calls_init(struct calls *calls)
{
    TAILQ_INIT(&calls->pending);
    calls->last_id = 0;
}

struct call *calls_add(struct calls *calls, enum op op, enum call_use use)
{
    struct call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->id = ++calls->last_id;
    call->op = op;
    call->use = use;
    TAILQ_INSERT_TAIL(&calls->pending, call, entry);
    return call;
}

struct call *calls_find(const struct calls *calls, const struct request_id *id)
{
    struct call *call;

    if (id->kind != REQUEST_ID_NUMBER)
        return NULL;
    TAILQ_FOREACH (call, &calls->pending, entry) {
        if (call->id == id->number)
            return call;
    }
    return NULL;
}

struct call *calls_first(const struct calls *calls)
{
    return TAILQ_FIRST(&calls->pending);
}

void calls_answer(struct calls *calls, struct call *call, int result, struct incoming *incoming)
{
    lb_assert(!call->is_answered);
    TAILQ_REMOVE(&calls->pending, call, entry);
    call->is_answered = true;
    call->result = result;
    call->incoming = incoming;
}

void calls_forget_grant(struct calls *calls, const struct lb_grant *grant)
{
    struct call *call;

    TAILQ_FOREACH (call, &calls->pending, entry) {
        if (call->grant == grant)
            call->grant = NULL;
    }
}

void calls_free(struct calls *calls, struct call *call)
{
    if (!call)
        return;
    if (!call->is_answered)
        TAILQ_REMOVE(&calls->pending, call, entry);
    calls_free_incoming(call->incoming);
    free(call->line);
    free(call);
}

void calls_free_incoming(struct incoming *incoming)
{
    if (!incoming)
        return;
    incoming_clear(incoming);
    free(incoming);
}

int calls_result(const struct incoming *incoming)
{
    if (!incoming->error)
        return 0;
    if (incoming->reply.error == ERROR_NONE || (int)incoming->reply.error > LB_E_INTERNAL)
        return LB_E_OTHER;
    return (int)incoming->reply.error;
}
