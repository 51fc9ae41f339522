// Requests about a grant that the connection has: extend and check.
#include <stdlib.h>

#include "daemon/core/hold.h"

struct claim *hold_find(struct session *session, const struct request *request)
{
    struct claim *claim = session_find_claim(session, request->key, request->owner);

    if (!claim || claim->state != CLAIM_GRANTED)
        return NULL;
    if (request->fence != LB_NONE && request->fence != claim->fence)
        return NULL;
    return claim;
}

void hold_check_request(struct broker *broker, struct session *session,
                        const struct request *request)
{
    const struct claim *claim = hold_find(session, request);
    struct reply *reply = broker_reply(broker, session, &request->id, OP_CHECK);

    reply->held = claim != NULL;
    if (!claim)
        return;
    reply->fence = claim->fence;
    reply->valid_ms = claim->deadline_ms - broker->now_ms;
    reply->deadline_ms = claim->deadline_ms;
    reply->state = claim->suspect ? "suspect" : "ok";
}

// True when the request was refused.
static bool extend_refuse(struct broker *broker, struct session *session,
                          const struct request *request, const struct claim *claim)
{
    if (broker_refuse_ttl(broker, session, request))
        return true;
    if (!claim) {
        (void)broker_refuse(broker, session, &request->id, OP_EXTEND, ERROR_NOT_HELD);
        return true;
    }
    if (!broker->up) {
        broker_refuse(broker, session, &request->id, OP_EXTEND, ERROR_UNAVAILABLE)->reason = "down";
        return true;
    }
    return false;
}

void hold_extend_request(struct broker *broker, struct session *session,
                         const struct request *request)
{
    struct claim *claim = hold_find(session, request);

    if (extend_refuse(broker, session, request, claim))
        return;

    struct extension *extension = calloc(1, sizeof(*extension));

    if (!extension) {
        broker_refuse_memory(broker, session, request);
        return;
    }
    extension->ttl_ms = request->ttl_ms == LB_NONE ? claim->ttl_ms : request->ttl_ms;
    extension->max_hold_ms = request->max_hold_ms;
    extension->arrived_ms = broker->now_ms;
    call_open(&extension->call, session, &request->id, OP_EXTEND);
    TAILQ_INSERT_TAIL(&claim->extensions, extension, link);
    broker_mark_dirty(broker, claim->lock);
}
