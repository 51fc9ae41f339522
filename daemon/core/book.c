// Effects and small bookkeeping. Nothing here decides anything.
#include "daemon/core/book.h"

#include <string.h>

#include "daemon/core/lease.h"

uint64_t broker_new_id(struct broker *broker)
{
    return broker->next_id++;
}

bool broker_has_room(const struct broker *broker)
{
    return broker->effects->count + EFFECTS_A_TRANSITION <= EFFECTS_MAX;
}

static struct effect *effect_add(struct broker *broker, enum effect_kind kind, uint64_t session)
{
    struct effects *effects = broker->effects;

    lb_assert(effects->count < EFFECTS_MAX);

    struct effect *effect = &effects->items[effects->count++];

    memset(effect, 0, sizeof(*effect));
    effect->kind = kind;
    effect->session = session;
    return effect;
}

struct reply *broker_reply(struct broker *broker, const struct session *session,
                           const struct request_id *id, enum op op)
{
    uint64_t session_id = session && !session->closed ? session->id : 0;
    struct effect *effect = effect_add(broker, EFFECT_REPLY, session_id);

    effect->reply = reply_blank();
    effect->reply.id = *id;
    effect->reply.op = op;
    return &effect->reply;
}

struct reply *broker_refuse(struct broker *broker, const struct session *session,
                            const struct request_id *id, enum op op, enum error_code error)
{
    struct reply *reply = broker_reply(broker, session, id, op);

    reply->error = error;
    return reply;
}

void broker_refuse_field(struct broker *broker, const struct session *session,
                         const struct request *request, const char *field, const char *message)
{
    struct reply *reply =
        broker_refuse(broker, session, &request->id, request->op, ERROR_BAD_FIELD);

    reply->field = field;
    reply->message = message;
}

bool broker_refuse_ttl(struct broker *broker, const struct session *session,
                       const struct request *request)
{
    // LB_NONE, a ttl that is not given, is below every maximum.
    if (request->ttl_ms <= broker->ttl_max_ms)
        return false;
    broker_refuse_field(broker, session, request, "ttl_ms", "ttl_ms is above the broker's ttl_max");
    return true;
}

void broker_refuse_quota(struct broker *broker, const struct session *session,
                         const struct request *request, const char *limit)
{
    broker->stats.quota_refused++;
    broker_refuse(broker, session, &request->id, request->op, ERROR_QUOTA)->limit = limit;
}

void broker_refuse_memory(struct broker *broker, const struct session *session,
                          const struct request *request)
{
    broker->stats.out_of_memory++;
    broker_refuse_quota(broker, session, request, "memory");
}

struct reply *call_answer(struct broker *broker, struct call *call)
{
    struct reply *reply = broker_reply(broker, call->session, &call->id, call->op);

    call_close(call);
    return reply;
}

struct reply *call_refuse(struct broker *broker, struct call *call, enum error_code error)
{
    struct reply *reply = call_answer(broker, call);

    reply->error = error;
    return reply;
}

struct holder holder_unknown(void)
{
    return (struct holder){
        .pid = LB_NONE,
        .uid = LB_NONE,
        .fence = LB_NONE,
        .held_ms = LB_NONE,
        .ttl_left_ms = LB_NONE,
    };
}

struct holder *broker_reply_holder(struct broker *broker, struct reply *reply)
{
    struct effect *effect = &broker->effects->items[broker->effects->count - 1];

    lb_assert(reply == &effect->reply);
    effect->holder = holder_unknown();
    reply->holder = &effect->holder;
    return &effect->holder;
}

void broker_notify(struct broker *broker, const struct claim *claim, enum notice_kind kind,
                   const char *reason)
{
    if (!claim->session || claim->session->closed)
        return;

    struct effect *effect = effect_add(broker, EFFECT_NOTICE, claim->session->id);

    effect->notice = (struct notice){
        .kind = kind,
        .key = claim->key,
        .owner = claim->owner,
        .fence = claim->fence,
        .valid_ms = kind == NOTICE_LOST ? LB_NONE : claim->deadline_ms - broker->now_ms,
        .deadline_ms = claim->deadline_ms,
        .reason = reason,
    };
}

struct fact *broker_fact(struct broker *broker, enum fact_level level, const char *event,
                         const struct claim *claim)
{
    struct effect *effect = effect_add(broker, EFFECT_FACT, 0);

    effect->fact = (struct fact){
        .level = level,
        .event = event,
        .fence = LB_NONE,
        .ms = LB_NONE,
        .count = LB_NONE,
    };
    if (claim) {
        effect->session = claim->session ? claim->session->id : 0;
        effect->fact.key = claim->key;
        effect->fact.owner = *claim->owner ? claim->owner : NULL;
        effect->fact.fence = claim->fence ? claim->fence : LB_NONE;
    }
    return &effect->fact;
}

void broker_close(struct broker *broker, uint64_t session_id)
{
    (void)effect_add(broker, EFFECT_CLOSE, session_id);
}

struct backend_op *broker_start(struct broker *broker, struct flight *flight,
                                enum backend_op_kind kind, void *subject, const char *key)
{
    struct effect *effect = effect_add(broker, EFFECT_BACKEND, 0);

    flight->op_id = broker_new_id(broker);
    flight->kind = kind;
    flight->subject = subject;
    flight_tree_add(&broker->flights, flight);
    effect->op = (struct backend_op){
        .kind = kind,
        .op_id = flight->op_id,
        .key = key,
        .fence_floor = broker->fence_floor,
        .timeout_ms = lease_command_timeout(broker->ttl_max_ms),
        .not_after_ms = LB_NONE,
        .loss_ttl_ms = broker->waits_after_loss ? broker->loss_ttl_ms : 0,
        .saw_epoch = broker->saw_epoch,
    };
    return &effect->op;
}

struct time_limit broker_limit(const struct broker *broker, struct backend_op *op,
                               int64_t within_ms)
{
    int64_t latest_ms = server_clock_latest(&broker->server_clock, broker->now_ms);

    if (latest_ms == LB_NONE)
        return (struct time_limit){0};
    op->not_after_ms = latest_ms + within_ms;
    return (struct time_limit){
        .is_set = true,
        .server_ms = op->not_after_ms,
        .local_ms =
            broker->now_ms + within_ms + server_clock_width(&broker->server_clock, broker->now_ms),
    };
}

static void count_waiting(struct broker *broker, const struct claim *claim, size_t change)
{
    broker->waiting_count += change;
    if (!claim->is_try)
        claim->session->waiting_count += change;
}

void broker_queue(struct broker *broker, struct lock *lock, struct claim *claim)
{
    lock_add_contender(lock, claim);
    count_waiting(broker, claim, 1);
}

void broker_queue_first(struct broker *broker, struct lock *lock, struct claim *claim)
{
    lock_add_contender_first(lock, claim);
    count_waiting(broker, claim, 1);
}

void broker_unqueue(struct broker *broker, struct claim *claim)
{
    lock_remove_contender(claim->lock, claim);
    count_waiting(broker, claim, (size_t)-1);
}

void broker_raise_floor(struct broker *broker, int64_t fence)
{
    if (fence > broker->fence_floor)
        broker->fence_floor = fence;
}

void broker_mark_dirty(struct broker *broker, struct lock *lock)
{
    if (lock->dirty)
        return;
    lock->dirty = true;
    TAILQ_INSERT_TAIL(&broker->dirty, lock, dirty_link);
}

void broker_mark_all_dirty(struct broker *broker)
{
    struct lock *lock;

    for (lock = lock_tree_first(&broker->locks); lock; lock = lock_tree_next(lock))
        broker_mark_dirty(broker, lock);
}
