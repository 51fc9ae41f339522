// What each client was told, and what must be true of it. It judges by what was said alone; that is
// why it may not look into the broker.
#include <stdlib.h>

#include "proto/macros.h"
#include "tests/unit/core/walk.h"

// Leases last up to this here, so a key that somebody meddled with is in order again after it.
#define MEDDLED_FOR_MS 5200

static struct walk_pending *find_pending(struct walk *walk, uint64_t session, int64_t id)
{
    for (int i = 0; i < walk->pending_count; i++) {
        if (walk->pending[i].session == session && walk->pending[i].id == id)
            return &walk->pending[i];
    }
    return NULL;
}

static struct walk_grant *find_grant(struct walk *walk, uint64_t session, int key, int64_t fence)
{
    for (int i = walk->grants_count - 1; i >= 0; i--) {
        struct walk_grant *grant = &walk->grants[i];

        if (grant->session == session && grant->key == key && grant->fence == fence)
            return grant;
    }
    return NULL;
}

struct walk_grant *walk_live_grant(struct walk *walk, uint64_t session, int key, char owner)
{
    for (int i = walk->grants_count - 1; i >= 0; i--) {
        struct walk_grant *grant = &walk->grants[i];

        if (grant->session == session && grant->key == key && grant->owner == owner)
            return grant->is_lost || grant->is_over ? NULL : grant;
    }
    return NULL;
}

static bool was_meddled_with(const struct walk *walk, int key)
{
    int64_t at_ms = walk->model.keys[key].meddled_ms;

    return at_ms && walk->world.now_ms < at_ms + MEDDLED_FOR_MS;
}

// The step that is going on gives this grant back, or ends its client: it may be handed on in it.
static bool is_leaving(const struct walk *walk, const struct walk_grant *grant)
{
    if (grant->session != walk->leaving_session)
        return false;
    return walk->leaving_key == -1 ||
           (walk->leaving_key == grant->key && walk->leaving_owner == grant->owner);
}

// Nobody else may still rely on the key. One who was told `lost` may until the deadline, unless it
// said or showed that it is done.
static void judge_exclusion(const struct walk *walk, int key)
{
    if (was_meddled_with(walk, key))
        return;
    for (int i = 0; i < walk->grants_count; i++) {
        const struct walk_grant *other = &walk->grants[i];

        if (other->key == key && !other->is_over && !is_leaving(walk, other))
            lb_assert(other->deadline_ms <= walk->world.now_ms);
    }
}

static void judge_times(const struct walk *walk, int64_t valid_ms, int64_t deadline_ms)
{
    lb_assert(valid_ms > 0);
    lb_assert(deadline_ms >= walk->world.now_ms);
}

static void granted(struct walk *walk, const struct walk_pending *pending,
                    const struct reply *reply)
{
    judge_times(walk, reply->valid_ms, reply->deadline_ms);
    judge_exclusion(walk, pending->key);
    lb_assert(reply->fence > walk->last_fence[pending->key]);
    walk->last_fence[pending->key] = reply->fence;
    lb_assert(walk->grants_count < WALK_GRANTS_MAX);
    walk->grants[walk->grants_count++] = (struct walk_grant){
        .session = pending->session,
        .key = pending->key,
        .owner = pending->owner,
        .fence = reply->fence,
        .serial = walk->serials[pending->key],
        .deadline_ms = reply->deadline_ms,
    };
    walk->granted++;
}

static void affirmed(struct walk *walk, const struct walk_pending *pending,
                     const struct reply *reply)
{
    struct walk_grant *grant =
        walk_live_grant(walk, pending->session, pending->key, pending->owner);

    lb_assert(grant && grant->fence == reply->fence);
    judge_times(walk, reply->valid_ms, reply->deadline_ms);
    lb_assert(reply->deadline_ms >= grant->deadline_ms);
    grant->deadline_ms = reply->deadline_ms;
}

// A break frees the key soon, also of one who cannot be told any more. A holder is told until when.
static void broken(struct walk *walk, int key)
{
    for (int i = 0; i < walk->grants_count; i++) {
        if (walk->grants[i].key == key && walk->grants[i].deadline_ms > walk->world.now_ms)
            walk->grants[i].deadline_ms = walk->world.now_ms;
    }
}

static void judge_success(struct walk *walk, const struct walk_pending *pending,
                          const struct reply *reply)
{
    if (pending->op == OP_ACQUIRE) {
        granted(walk, pending, reply);
    } else if (pending->op == OP_EXTEND) {
        affirmed(walk, pending, reply);
        walk->extended++;
    } else if (pending->op == OP_BREAK && reply->held) {
        broken(walk, pending->key);
    } else if (pending->op == OP_CHECK && reply->held) {
        affirmed(walk, pending, reply);
    } else if (pending->op == OP_CHECK) {
        lb_assert(!walk_live_grant(walk, pending->session, pending->key, pending->owner));
    }
}

static void judge_reply(struct walk *walk, uint64_t session, const struct reply *reply)
{
    if (reply->id.kind == REQUEST_ID_NONE)
        return;

    struct walk_pending *found = find_pending(walk, session, reply->id.number);

    lb_assert(found && found->op == reply->op);

    struct walk_pending pending = *found;

    *found = walk->pending[--walk->pending_count];
    if (reply->error == ERROR_NONE)
        judge_success(walk, &pending, reply);
    else
        walk->refused++;
    lb_assert(reply->error != ERROR_INTERNAL);
}

static void judge_notice(struct walk *walk, uint64_t session, const struct notice *notice)
{
    struct walk_grant *grant = find_grant(walk, session, model_key_of(notice->key), notice->fence);

    lb_assert(grant && !grant->is_lost && !grant->is_over);
    if (notice->kind == NOTICE_LOST) {
        grant->is_lost = true;
        grant->deadline_ms = notice->deadline_ms;
        walk->lost++;
        return;
    }
    judge_times(walk, notice->valid_ms, notice->deadline_ms);
    lb_assert(notice->deadline_ms >= grant->deadline_ms);
    grant->deadline_ms = notice->deadline_ms;
    walk->suspected += notice->kind == NOTICE_SUSPECT;
}

// Whoever may still rely on a key has it: nobody told a deadline beyond the true expiry.
void referee_judge_leases(const struct walk *walk)
{
    for (int i = 0; i < walk->grants_count; i++) {
        const struct walk_grant *grant = &walk->grants[i];
        const struct model_key *key = &walk->model.keys[grant->key];

        if (grant->is_over || grant->deadline_ms <= walk->world.now_ms ||
            was_meddled_with(walk, grant->key))
            continue;
        lb_assert(key->serial == grant->serial && !key->is_foreign);
        lb_assert(key->expires_ms >= grant->deadline_ms);
    }
}

// A token that is given back is never sent again but to be deleted, and a lost grant's lease is not
// renewed any more.
static void judge_op(struct walk *walk, const struct backend_op *op)
{
    lb_assert(op->serial < WALK_SERIALS_MAX);
    if (op->kind == BACKEND_ACQUIRE)
        walk->serials[model_key_of(op->key)] = op->serial;
    if (op->kind == BACKEND_RELEASE)
        walk->is_given_back[op->serial] = true;
    if (op->kind == BACKEND_RENEW || op->kind == BACKEND_ACQUIRE)
        lb_assert(!walk->is_given_back[op->serial]);
    for (int i = walk->grants_count - 1; i >= 0 && op->kind == BACKEND_RENEW; i--) {
        if (walk->grants[i].serial != op->serial)
            continue;

        // Those before it were handed on; and so was this one, if the next could not be told.
        lb_assert(!walk->grants[i].is_lost);
        lb_assert(!walk->grants[i].is_over || walk->world.stale_ms == walk->world.now_ms);
        break;
    }
}

void referee_observe(struct world *world, const struct effect *effect)
{
    struct walk *walk = world->context;

    switch (effect->kind) {
    case EFFECT_REPLY:
        if (effect->session)
            judge_reply(walk, effect->session, &effect->reply);
        break;
    case EFFECT_NOTICE:
        judge_notice(walk, effect->session, &effect->notice);
        break;
    case EFFECT_BACKEND:
        judge_op(walk, &effect->op);
        model_submit(&walk->model, &effect->op, world->now_ms);
        break;
    case EFFECT_CLOSE:
        lb_assert(false && "nobody is out of memory");
        break;
    case EFFECT_FACT:
    default:
        break;
    }
}
