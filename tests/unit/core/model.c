// The keys behave as the scripts of daemon/redis do. It knows nothing of the broker's intentions.
#include "tests/unit/core/model.h"

#include <string.h>

#include "proto/macros.h"

static int64_t below(struct model *model, int64_t bound)
{
    return (int64_t)rng_below(&model->rng, (uint64_t)bound);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void model_init(struct model *model, uint64_t seed, int64_t now_ms)
{
    memset(model, 0, sizeof(*model));
    rng_init(&model->rng, seed);
    model->connect_ms = now_ms + below(model, 300);
    model->fence = 1000;
}

int model_key_of(const char *name)
{
    lb_assert(name[0] == 'k' && name[1] >= '0' && name[1] < '0' + MODEL_KEYS);
    return name[1] - '0';
}

// Short as a rule, and sometimes long enough to be in danger.
static int64_t latency(struct model *model)
{
    if (!model->is_healthy && below(model, 40) == 0)
        return below(model, 400);
    return below(model, 3);
}

static void post(struct model *model, const struct event *event)
{
    lb_assert(model->events_count < (int)LB_ARRAY_LENGTH(model->events));
    model->events[model->events_count++] = *event;
}

static void post_outcome(struct model *model, const struct model_op *op)
{
    struct event event = {.kind = EVENT_BACKEND_OUTCOME, .outcome = op->outcome};

    post(model, &event);
}

static void op_remove(struct model *model, int i)
{
    memmove(&model->ops[i], &model->ops[i + 1],
            (size_t)(model->ops_count - i - 1) * sizeof(model->ops[0]));
    model->ops_count--;
}

void model_submit(struct model *model, const struct backend_op *op, int64_t now_ms)
{
    struct model_op *added = &model->ops[model->ops_count];

    lb_assert(model->ops_count < MODEL_OPS_MAX);
    *added = (struct model_op){.op = *op, .key = model_key_of(op->key), .sent_ms = now_ms};
    added->outcome =
        (struct backend_outcome){.op_id = op->op_id, .sent_ms = now_ms, .server_ms = LB_NONE};
    if (!model->is_up) {
        added->outcome.result = RESULT_NOT_SENT;
        added->outcome.sent_ms = LB_NONE;
        post_outcome(model, added);
        return;
    }
    model->ops_count++;
    added->run_ms = later(model->last_run_ms, now_ms + latency(model));
    added->answer_ms = later(model->last_answer_ms, added->run_ms + latency(model));
    model->last_run_ms = added->run_ms;
    model->last_answer_ms = added->answer_ms;
}

static bool key_is_free(const struct model_key *key, int64_t now_ms)
{
    return (!key->serial && !key->is_foreign) || key->expires_ms <= now_ms;
}

static void describe(const struct model_key *key, int64_t now_ms, struct holder *ret_holder)
{
    if (key_is_free(key, now_ms))
        return;
    ret_holder->kind = key->is_foreign ? HOLDER_FOREIGN : HOLDER_LOCAL;
    ret_holder->ttl_left_ms = key->expires_ms - now_ms;
}

static void reserve_fences(struct model *model, struct model_op *op)
{
    if (op->op.fences == 0)
        return;
    op->outcome.fence = later(model->fence, op->op.fence_floor) + 1;
    op->outcome.fences = op->op.fences;
    model->fence = op->outcome.fence + op->op.fences - 1;
}

static void run_acquire(struct model *model, struct model_op *op, int64_t now_ms)
{
    struct model_key *key = &model->keys[op->key];
    int64_t expires_ms = now_ms + op->op.ttl_ms;

    if (key_is_free(key, now_ms)) {
        key->serial = op->op.serial;
        key->is_foreign = false;
        key->expires_ms = expires_ms;
    } else if (key->is_foreign || key->serial != op->op.serial) {
        op->outcome.result = RESULT_BUSY;
        describe(key, now_ms, &op->outcome.holder);
        return;
    }
    key->expires_ms = later(key->expires_ms, expires_ms);
    reserve_fences(model, op);
    op->outcome.result = RESULT_OK;
}

// Renew and release, which want the key to be ours.
static void run_on_ours(struct model *model, struct model_op *op, int64_t now_ms)
{
    struct model_key *key = &model->keys[op->key];

    if (key_is_free(key, now_ms)) {
        op->outcome.result = RESULT_GONE;
    } else if (key->is_foreign || key->serial != op->op.serial) {
        op->outcome.result = RESULT_STOLEN;
    } else if (op->op.kind == BACKEND_RENEW) {
        key->expires_ms = later(key->expires_ms, now_ms + op->op.ttl_ms);
        if (model->is_healthy || below(model, 4) != 0)
            reserve_fences(model, op);
        op->outcome.result = RESULT_OK;
    } else {
        key->serial = 0;
        op->outcome.result = RESULT_OK;
    }
}

static void run_look(struct model *model, struct model_op *op, int64_t now_ms)
{
    struct model_key *key = &model->keys[op->key];

    op->outcome.result = RESULT_OK;
    describe(key, now_ms, &op->outcome.holder);
    if (op->op.kind != BACKEND_BREAK)
        return;
    if (op->outcome.holder.kind == HOLDER_LOCAL)
        key->meddled_ms = now_ms;
    key->serial = 0;
    key->is_foreign = false;
}

static void op_run(struct model *model, struct model_op *op, int64_t now_ms)
{
    op->has_run = true;
    if (!model->is_healthy && below(model, 100) == 0)
        op->outcome.result = RESULT_REFUSED;
    else if (op->op.kind == BACKEND_ACQUIRE)
        run_acquire(model, op, now_ms);
    else if (op->op.kind == BACKEND_RENEW || op->op.kind == BACKEND_RELEASE)
        run_on_ours(model, op, now_ms);
    else
        run_look(model, op, now_ms);
}

static int64_t op_due(const struct model_op *op)
{
    int64_t given_up_ms = op->sent_ms + op->op.timeout_ms;

    if (!op->has_run)
        return op->is_orphan || op->run_ms < given_up_ms ? op->run_ms : given_up_ms;
    return op->answer_ms < given_up_ms ? op->answer_ms : given_up_ms;
}

int64_t model_next(const struct model *model)
{
    int64_t next_ms = model->is_up ? INT64_MAX : model->connect_ms;

    for (int i = 0; i < model->ops_count; i++) {
        if (op_due(&model->ops[i]) < next_ms)
            next_ms = op_due(&model->ops[i]);
    }
    return next_ms;
}

// What is in flight on the link when it breaks: never written, or without an answer, and then run
// already, run later, or lost.
static void op_break(struct model *model, int i, int64_t now_ms)
{
    struct model_op *op = &model->ops[i];
    bool was_written = op->has_run || below(model, 2) == 0;

    op->outcome.result = was_written ? RESULT_UNKNOWN : RESULT_NOT_SENT;
    if (!was_written)
        op->outcome.sent_ms = LB_NONE;
    post_outcome(model, op);
    if (!was_written || op->has_run || below(model, 2) == 0) {
        op_remove(model, i);
        return;
    }
    op->is_orphan = true;
    op->run_ms = later(op->run_ms, now_ms + below(model, 1500));
}

void model_break(struct model *model, int64_t now_ms)
{
    struct event down = {.kind = EVENT_BACKEND_DOWN};
    bool is_told_first = below(model, 2) == 0;

    if (!model->is_up)
        return;
    model->is_up = false;
    model->last_run_ms = 0;
    model->last_answer_ms = 0;
    model->connect_ms = now_ms + (model->is_healthy ? 20 : below(model, 1500));
    if (is_told_first)
        post(model, &down);
    for (int i = model->ops_count - 1; i >= 0; i--) {
        if (!model->ops[i].is_orphan)
            op_break(model, i, now_ms);
    }
    if (!is_told_first)
        post(model, &down);
}

static void connect_ends(struct model *model, int64_t now_ms)
{
    struct event event = {
        .kind = EVENT_BACKEND_UP,
        .facts = {.server_ms = LB_NONE, .asked_ms = LB_NONE},
    };

    if (!model->is_healthy && below(model, 3) == 0) {
        event.kind = EVENT_BACKEND_DOWN;
        model->connect_ms = now_ms + 1 + below(model, 500);
        post(model, &event);
        return;
    }
    event.facts.run_id = below(model, 10) == 0 ? "other" : "one";
    model->is_up = true;
    post(model, &event);
}

static void op_advance(struct model *model, int i, int64_t now_ms)
{
    struct model_op *op = &model->ops[i];

    if (!op->has_run && op->run_ms <= now_ms) {
        op_run(model, op, now_ms);
        if (op->is_orphan)
            op_remove(model, i);
    } else if (op->has_run && op->answer_ms <= now_ms) {
        post_outcome(model, op);
        op_remove(model, i);
    } else {
        model_break(model, now_ms); // unanswered for too long
    }
}

void model_run(struct model *model, int64_t now_ms)
{
    int i = 0;

    while (i < model->ops_count) {
        if (op_due(&model->ops[i]) > now_ms) {
            i++;
            continue;
        }
        op_advance(model, i, now_ms);
        i = 0;
    }
    if (!model->is_up && model->connect_ms <= now_ms)
        connect_ends(model, now_ms);
}

bool model_take(struct model *model, struct event *ret_event)
{
    if (model->events_done == model->events_count) {
        model->events_done = model->events_count = 0;
        return false;
    }
    *ret_event = model->events[model->events_done++];
    return true;
}

void model_foreign(struct model *model, int64_t now_ms)
{
    struct model_key *key = &model->keys[below(model, MODEL_KEYS)];

    if (!key_is_free(key, now_ms))
        return;
    key->serial = 0;
    key->is_foreign = true;
    key->expires_ms = now_ms + 1 + below(model, 3000);
}

void model_meddle(struct model *model, int64_t now_ms)
{
    struct model_key *key = &model->keys[below(model, MODEL_KEYS)];

    if (key_is_free(key, now_ms) || key->is_foreign)
        return;
    key->serial = 0;
    key->is_foreign = below(model, 2) == 0;
    key->expires_ms = now_ms + 1 + below(model, 3000);
    key->meddled_ms = now_ms;
}
