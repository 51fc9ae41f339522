// The operations as the scripts in Redis do them, on a table. It has no clock of its own and calls
// nobody but `post`, so that a simulator can put it under any time and any fault.
//
// An expiry is written to the state file before anybody can hear of it: a crash right after the
// answer must already know it. When that write fails, the operation is refused.
#include "daemon/memory/memory_backend.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/tree.h"
#include "daemon/memory/state_file.h"

// No lock lives longer than an hour, the most that the option ttl_max allows: a state file that
// says more, with a little for the clock, cannot be true. The broker that crashed may have had a
// larger ttl_max than this one, so this one's says nothing.
#define RECORDED_MAX_MS (3600000 + 36000)

struct entry {
    RB_ENTRY(entry) by_key;
    RB_ENTRY(entry) by_expiry;
    uint64_t serial;
    int64_t expires_ms; // not alive from this time on
    char key[];
};

RB_HEAD(key_tree, entry);
RB_HEAD(expiry_tree, entry);

struct memory_backend {
    struct memory_backend_options options;
    struct state_file state;
    int64_t blocked_until_ms;
    int64_t last_fence;
    struct key_tree keys;
    struct expiry_tree expiries;
    char state_path[]; // a copy of options.state_path; "" without one
};

static int entry_compare_key(const struct entry *a, const struct entry *b)
{
    return strcmp(a->key, b->key);
}

static int entry_compare_expiry(const struct entry *a, const struct entry *b)
{
    if (a->expires_ms != b->expires_ms)
        return a->expires_ms < b->expires_ms ? -1 : 1;
    return strcmp(a->key, b->key);
}

LB_TREE_GENERATE(key_tree, entry, by_key, entry_compare_key)
LB_TREE_GENERATE(expiry_tree, entry, by_expiry, entry_compare_expiry)

static void entry_remove(struct memory_backend *backend, struct entry *entry)
{
    RB_REMOVE(key_tree, &backend->keys, entry);
    RB_REMOVE(expiry_tree, &backend->expiries, entry);
    free(entry);
}

static struct entry *entry_add(struct memory_backend *backend, const struct backend_op *op,
                               int64_t expires_ms)
{
    size_t size = strlen(op->key) + 1;
    struct entry *entry = malloc(sizeof(*entry) + size);

    if (!entry)
        return NULL;
    memcpy(entry->key, op->key, size);
    entry->serial = op->serial;
    entry->expires_ms = expires_ms;
    RB_INSERT(key_tree, &backend->keys, entry);
    RB_INSERT(expiry_tree, &backend->expiries, entry);
    return entry;
}

static void entry_push_out(struct memory_backend *backend, struct entry *entry, int64_t expires_ms)
{
    if (expires_ms <= entry->expires_ms)
        return;
    RB_REMOVE(expiry_tree, &backend->expiries, entry);
    entry->expires_ms = expires_ms;
    RB_INSERT(expiry_tree, &backend->expiries, entry);
}

// Forgets what has expired.
static void table_expire(struct memory_backend *backend, int64_t now_ms)
{
    struct entry *first;

    while ((first = RB_MIN(expiry_tree, &backend->expiries)) && first->expires_ms <= now_ms)
        entry_remove(backend, first);
}

static struct entry *table_find(struct memory_backend *backend, const char *key)
{
    struct entry *entry = RB_ROOT(&backend->keys);

    while (entry) {
        int order = strcmp(key, entry->key);

        if (order == 0)
            return entry;
        entry = order < 0 ? RB_LEFT(entry, by_key) : RB_RIGHT(entry, by_key);
    }
    return NULL;
}

static void holder_describe(const struct entry *entry, int64_t now_ms, struct holder *ret_holder)
{
    ret_holder->kind = HOLDER_LOCAL;
    ret_holder->ttl_left_ms = entry->expires_ms - now_ms;
}

// The first of so many fences, or LB_NONE when there are none left.
static int64_t fences_next(const struct memory_backend *backend, int64_t floor, int64_t count)
{
    int64_t fence = backend->options.wall_us(backend->options.context);
    int64_t highest = floor > backend->last_fence ? floor : backend->last_fence;

    if (fence <= highest)
        fence = highest + 1;
    return fence <= LB_INTEGER_MAX - count + 1 ? fence : LB_NONE;
}

static void fences_reserve(struct memory_backend *backend, int64_t first, int64_t count,
                           struct backend_outcome *outcome)
{
    backend->last_fence = first + count - 1;
    outcome->fence = first;
    outcome->fences = count;
}

static enum backend_result acquire_free(struct memory_backend *backend, const struct backend_op *op,
                                        struct entry *own, struct backend_outcome *outcome)
{
    int64_t expires_ms = outcome->sent_ms + op->ttl_ms;
    int64_t count = op->fences > 1 ? op->fences : 1;
    int64_t fence = fences_next(backend, op->fence_floor, count);

    if (fence == LB_NONE || state_file_raise(&backend->state, expires_ms) < 0)
        return RESULT_REFUSED;
    if (own)
        entry_push_out(backend, own, expires_ms);
    else if (!entry_add(backend, op, expires_ms))
        return RESULT_REFUSED;
    fences_reserve(backend, fence, count, outcome);
    return RESULT_OK;
}

static enum backend_result acquire(struct memory_backend *backend, const struct backend_op *op,
                                   struct entry *entry, struct backend_outcome *outcome)
{
    if (outcome->sent_ms < backend->blocked_until_ms) {
        outcome->ends_in_ms = backend->blocked_until_ms - outcome->sent_ms;
        return RESULT_QUARANTINED;
    }
    if (entry && entry->serial != op->serial) {
        holder_describe(entry, outcome->sent_ms, &outcome->holder);
        return RESULT_BUSY;
    }
    return acquire_free(backend, op, entry, outcome);
}

static enum backend_result renew(struct memory_backend *backend, const struct backend_op *op,
                                 struct entry *entry, struct backend_outcome *outcome)
{
    int64_t expires_ms = outcome->sent_ms + op->ttl_ms;
    int64_t fence;

    if (!entry)
        return RESULT_GONE;
    if (entry->serial != op->serial)
        return RESULT_STOLEN;
    if (state_file_raise(&backend->state, expires_ms) < 0)
        return RESULT_REFUSED;
    entry_push_out(backend, entry, expires_ms);
    fence = fences_next(backend, op->fence_floor, op->fences);
    if (op->fences > 0 && fence != LB_NONE)
        fences_reserve(backend, fence, op->fences, outcome);
    return RESULT_OK;
}

static enum backend_result release(struct memory_backend *backend, const struct backend_op *op,
                                   struct entry *entry)
{
    if (!entry)
        return RESULT_GONE;
    if (entry->serial != op->serial)
        return RESULT_STOLEN;
    entry_remove(backend, entry);
    return RESULT_OK;
}

static enum backend_result look(struct memory_backend *backend, const struct backend_op *op,
                                struct entry *entry, struct backend_outcome *outcome)
{
    if (!entry)
        return RESULT_OK;
    holder_describe(entry, outcome->sent_ms, &outcome->holder);
    if (op->kind == BACKEND_BREAK)
        entry_remove(backend, entry);
    return RESULT_OK;
}

static enum backend_result carry_out(struct memory_backend *backend, const struct backend_op *op,
                                     struct backend_outcome *outcome)
{
    struct entry *entry = table_find(backend, op->key);

    switch (op->kind) {
    case BACKEND_ACQUIRE:
        return acquire(backend, op, entry, outcome);
    case BACKEND_RENEW:
        return renew(backend, op, entry, outcome);
    case BACKEND_RELEASE:
        return release(backend, op, entry);
    case BACKEND_QUERY:
    case BACKEND_BREAK:
    default:
        return look(backend, op, entry, outcome);
    }
}

void memory_backend_submit(struct memory_backend *backend, const struct backend_op *op)
{
    int64_t now_ms = backend->options.now_ms(backend->options.context);
    struct event event = {
        .kind = EVENT_BACKEND_OUTCOME,
        .now_ms = now_ms,
        .outcome =
            {
                .op_id = op->op_id,
                .sent_ms = now_ms,
                .server_ms = LB_NONE,
                .fence = LB_NONE,
                .ends_in_ms = LB_NONE,
                .holder =
                    {
                        .kind = HOLDER_NONE,
                        .pid = LB_NONE,
                        .uid = LB_NONE,
                        .fence = LB_NONE,
                        .held_ms = LB_NONE,
                        .ttl_left_ms = LB_NONE,
                    },
            },
    };

    table_expire(backend, now_ms);
    event.outcome.result = carry_out(backend, op, &event.outcome);
    backend->options.post(backend->options.context, &event);
}

void memory_backend_open(struct memory_backend *backend)
{
    struct event event = {
        .kind = EVENT_BACKEND_UP,
        .now_ms = backend->options.now_ms(backend->options.context),
        .facts = {.server_ms = LB_NONE, .asked_ms = LB_NONE},
    };

    backend->options.post(backend->options.context, &event);

    // There are no other brokers: nothing that could be said is missed.
    event = (struct event){.kind = EVENT_CHANNEL_UP, .now_ms = event.now_ms};
    backend->options.post(backend->options.context, &event);
}

static int state_open(struct memory_backend *backend)
{
    int64_t now_ms = backend->options.now_ms(backend->options.context);
    int64_t ttl_max_ms = backend->options.ttl_max_ms;
    int rc = state_file_open(&backend->state, backend->options.state_path, now_ms + ttl_max_ms,
                             now_ms + RECORDED_MAX_MS);

    if (rc == 0 && backend->state.recorded_ms > now_ms)
        backend->blocked_until_ms = backend->state.recorded_ms;
    return rc;
}

int memory_backend_new(const struct memory_backend_options *options, int64_t *ret_blocked_until_ms,
                       struct memory_backend **ret_backend)
{
    const char *path = options->state_path ? options->state_path : "";
    size_t path_size = strlen(path) + 1;
    struct memory_backend *backend = malloc(sizeof(*backend) + path_size);
    int rc;

    if (!backend)
        return -ENOMEM;
    *backend = (struct memory_backend){.options = *options};
    memcpy(backend->state_path, path, path_size);
    if (options->state_path)
        backend->options.state_path = backend->state_path;
    RB_INIT(&backend->keys);
    RB_INIT(&backend->expiries);
    rc = state_open(backend);
    if (rc < 0) {
        free(backend);
        return rc;
    }
    *ret_blocked_until_ms = backend->blocked_until_ms;
    *ret_backend = backend;
    return 0;
}

// While the daemon before this one may have clients at work, the file says what this one knows.
static void state_end(struct memory_backend *backend, int64_t now_ms)
{
    if (RB_EMPTY(&backend->keys) && now_ms >= backend->blocked_until_ms)
        state_file_remove(&backend->state);
    else
        state_file_close(&backend->state);
}

void memory_backend_free(struct memory_backend *backend)
{
    int64_t now_ms;

    if (!backend)
        return;
    now_ms = backend->options.now_ms(backend->options.context);
    table_expire(backend, now_ms);
    state_end(backend, now_ms);
    while (!RB_EMPTY(&backend->keys))
        entry_remove(backend, RB_ROOT(&backend->keys));
    free(backend);
}
