// Effects as lines that can be read: one line each, fields that are not there left out, times of
// day counted from the world's beginning.
#include <string.h>

#include "proto/reply.h"
#include "proto/request.h"
#include "tests/unit/core/world.h"

static void print_number(struct world *world, const char *name, int64_t value)
{
    if (value != LB_NONE)
        (void)fprintf(world->out, " %s=%lld", name, (long long)value);
}

static void print_time(struct world *world, const char *name, int64_t at_ms)
{
    if (at_ms != LB_NONE)
        print_number(world, name, at_ms - WORLD_EPOCH_MS);
}

static void print_word(struct world *world, const char *name, const char *text)
{
    if (text && *text)
        (void)fprintf(world->out, " %s=%s", name, text);
}

static void print_holder(struct world *world, const struct holder *holder)
{
    static const char *const kinds[] = {"nobody", "local", "broker", "foreign"};

    (void)fprintf(world->out, " holder(%s", kinds[holder->kind]);
    if (holder->kind != HOLDER_NONE) {
        print_word(world, "host", holder->host);
        print_number(world, "pid", holder->pid);
        print_number(world, "uid", holder->uid);
        print_word(world, "client", holder->client);
        print_word(world, "note", holder->note);
        print_number(world, "fence", holder->fence);
        print_number(world, "held", holder->held_ms);
        print_number(world, "ttl_left", holder->ttl_left_ms);
        if (holder->without_expiry)
            (void)fprintf(world->out, " forever");
    }
    (void)fprintf(world->out, ")");
}

static void print_id(struct world *world, const struct request_id *id)
{
    if (id->kind == REQUEST_ID_NUMBER)
        (void)fprintf(world->out, "%lld", (long long)id->number);
    else
        (void)fprintf(world->out, "%s", id->kind == REQUEST_ID_TEXT ? id->text : "null");
}

static void print_error(struct world *world, const struct reply *reply)
{
    (void)fprintf(world->out, " %s", error_name(reply->error));
    print_word(world, "field", reply->field);
    print_word(world, "limit", reply->limit);
    print_word(world, "reason", reply->reason);
    print_number(world, "may_block", reply->may_block_ms);
    print_number(world, "ends_in", reply->ends_in_ms);
    print_number(world, "waited", reply->waited_ms);
    if (reply->holder)
        print_holder(world, reply->holder);
}

static void print_grant(struct world *world, const struct reply *reply)
{
    print_word(world, "key", reply->key);
    print_number(world, "fence", reply->fence);
    print_number(world, "ttl", reply->ttl_ms);
    print_number(world, "valid", reply->valid_ms);
    print_time(world, "deadline", reply->deadline_ms);
    print_number(world, "waited", reply->waited_ms);
}

static void print_rows(struct world *world, const struct reply *reply)
{
    for (size_t i = 0; i < reply->rows_count; i++) {
        const struct lock_row *row = &reply->rows[i];

        (void)fprintf(world->out, " [%s %s waiters=%lld", row->key, row->state,
                      (long long)row->waiters);
        print_holder(world, &row->holder);
        (void)fprintf(world->out, "]");
    }
    if (reply->more)
        (void)fprintf(world->out, " more");
}

static void print_hello(struct world *world, const struct reply *reply)
{
    print_number(world, "version", reply->version);
    print_word(world, "instance", reply->instance);
    print_word(world, "host", reply->host);
    print_number(world, "ttl_max", reply->ttl_max_ms);
    print_number(world, "max_wait", reply->max_wait_ms);
    print_time(world, "now", reply->now_ms);
    print_word(world, "backend", reply->backend);
}

static void print_success(struct world *world, const struct reply *reply)
{
    bool is_looking = reply->op == OP_CHECK || reply->op == OP_QUERY;

    if (reply->op == OP_ACQUIRE)
        (void)fprintf(world->out, " granted");
    else if (reply->op == OP_EXTEND)
        (void)fprintf(world->out, " extended");
    else
        (void)fprintf(world->out, " %s", op_name(reply->op));
    if (is_looking)
        (void)fprintf(world->out, reply->held ? " held" : " not held");
    if (reply->op == OP_BREAK)
        (void)fprintf(world->out, reply->held ? " broken" : " not broken");
    print_word(world, "state", reply->state);
    print_grant(world, reply);
    print_word(world, "outcome", reply->outcome);
    print_word(world, "reason", reply->reason);
    print_number(world, "frees_within", reply->frees_within_ms);
    if (reply->holder)
        print_holder(world, reply->holder);
    print_number(world, "waiters", reply->waiters);
    print_hello(world, reply);
    print_rows(world, reply);
}

static void print_reply(struct world *world, const struct effect *effect)
{
    (void)fprintf(world->out, "%s< ", world_session_name(effect->session));
    print_id(world, &effect->reply.id);
    if (effect->reply.error != ERROR_NONE)
        print_error(world, &effect->reply);
    else
        print_success(world, &effect->reply);
}

static void print_notice(struct world *world, const struct effect *effect)
{
    const struct notice *notice = &effect->notice;

    (void)fprintf(world->out, "%s< %s", world_session_name(effect->session),
                  notice_name(notice->kind));
    print_word(world, "key", notice->key);
    print_word(world, "owner", notice->owner);
    print_number(world, "fence", notice->fence);
    print_number(world, "valid", notice->valid_ms);
    print_time(world, "deadline", notice->deadline_ms);
    print_word(world, "reason", notice->reason);
}

static void print_op(struct world *world, const struct backend_op *op)
{
    static const char *const kinds[] = {
        [BACKEND_ACQUIRE] = "acquire", [BACKEND_RENEW] = "renew", [BACKEND_RELEASE] = "release",
        [BACKEND_QUERY] = "query",     [BACKEND_BREAK] = "break",
    };

    (void)fprintf(world->out, "redis< #%zu %s %s", world->ops_count, kinds[op->kind], op->key);
    if (op->serial)
        (void)fprintf(world->out, " token=%zu", world_token(world, op->serial));
    if (op->ttl_ms)
        print_number(world, "ttl", op->ttl_ms);
    if (op->kind == BACKEND_ACQUIRE)
        print_number(world, "floor", op->fence_floor);
    print_number(world, "timeout", op->timeout_ms);
    print_number(world, "not_after", op->not_after_ms);
    if (op->loss_ttl_ms)
        print_number(world, "loss", op->loss_ttl_ms);
    if (op->saw_epoch)
        (void)fprintf(world->out, " saw_epoch");
    if (op->fences > (op->kind == BACKEND_ACQUIRE)) // beside the grant's own
        print_number(world, "fences", op->fences);
    if (op->queue_ms)
        print_number(world, "queue", op->queue_ms);
}

static void print_fact(struct world *world, const struct effect *effect)
{
    static const char *const levels[] = {"warning", "notice", "info", "debug"};
    const struct fact *fact = &effect->fact;

    (void)fprintf(world->out, "log< %s %s", levels[fact->level], fact->event);
    if (effect->session)
        (void)fprintf(world->out, " of %s", world_session_name(effect->session));
    print_word(world, "key", fact->key);
    print_word(world, "owner", fact->owner);
    print_number(world, "fence", fact->fence);
    print_word(world, "reason", fact->reason);
    print_word(world, "status", fact->status);
    print_number(world, "ms", fact->ms);
    print_number(world, "count", fact->count);
}

static bool is_silent(const struct effect *effect)
{
    // Log lines of the daily work, and replies to those who left, would only be noise.
    if (effect->kind == EFFECT_FACT)
        return effect->fact.level == FACT_DEBUG;
    return effect->kind == EFFECT_REPLY && effect->session == 0;
}

void world_print(struct world *world, const struct effect *effect)
{
    if (is_silent(effect))
        return;
    (void)fprintf(world->out, "%7lld      ", (long long)(world->now_ms - WORLD_EPOCH_MS));
    switch (effect->kind) {
    case EFFECT_REPLY:
        print_reply(world, effect);
        break;
    case EFFECT_NOTICE:
        print_notice(world, effect);
        break;
    case EFFECT_BACKEND:
        print_op(world, &effect->op);
        break;
    case EFFECT_FACT:
        print_fact(world, effect);
        break;
    case EFFECT_CLOSE:
    default:
        (void)fprintf(world->out, "%s< (closed by the broker)",
                      world_session_name(effect->session));
        break;
    }
    (void)fprintf(world->out, "\n");
}
