// Giving a lock back. A release is owed until its outcome is definite, with or without a client
// that still listens; a key is never given back before the deadline that a client may still rely
// on, unless that client itself ended or gave it back.
#include "daemon/core/release.h"

#include <string.h>

#include "daemon/core/acquire.h"
#include "daemon/core/handoff.h"
#include "daemon/core/hold.h"
#include "daemon/core/lease.h"

void release_begin(struct broker *broker, struct lock *lock)
{
    lock_move(lock, LOCK_RELEASING);
    lock->maybe_set = false;
    broker_mark_dirty(broker, lock);
}

void release_place(struct broker *broker, struct lock *lock)
{
    if (!lock->serial) // nothing was asked since the last release: a token that no key has
        lock->serial = broker_new_id(broker);
    release_begin(broker, lock);
    lock->leaves = true;
}

// The token is done with: it is never sent again.
static void release_end(struct broker *broker, struct lock *lock)
{
    lock_move(lock, LOCK_IDLE);
    lock->serial = 0;
    lock->maybe_set = false;
    lock->gone = false;
    lock->grant = NULL;
    lock->queues = false;
    lock->verdict = VERDICT_NONE;
    lock->last_verdict = VERDICT_NONE;
    lock->ttl_longest_ms = 0;
    lock->stragglers_limit = (struct time_limit){0};
    broker_mark_dirty(broker, lock);
}

static void claim_bury(struct broker *broker, struct claim *claim)
{
    lb_assert(!alarm_is_set(&claim->alarm) && TAILQ_EMPTY(&claim->extensions));
    call_close(&claim->call);
    graveyard_bury(&broker->graves, &claim->grave);
}

// Answers the releaser, if there is one, and lets go of its claim.
static void release_answer(struct broker *broker, struct lock *lock, const char *outcome,
                           const char *reason)
{
    struct claim *claim = lock->grant;

    lock->grant = NULL;
    if (!claim)
        return;

    struct reply *reply = call_answer(broker, &claim->call);

    reply->outcome = outcome;
    reply->reason = reason;
    if (strcmp(outcome, "unconfirmed") == 0)
        reply->frees_within_ms = lock_frees_within_ms(lock, broker->now_ms);
    claim_bury(broker, claim);
}

static void release_granted(struct broker *broker, struct claim *claim,
                            const struct request *request)
{
    struct lock *lock = claim->lock;
    bool has_status = request->given & REQUEST_F_STATUS;
    struct fact *fact = broker_fact(broker, has_status ? FACT_INFO : FACT_DEBUG, "release", claim);

    fact->status = has_status ? request->status : NULL;
    fact->ms = broker->now_ms - claim->granted_ms;
    bool is_passed_on = handoff_is_due(broker, lock);
    bool lingers = linger_is_due(broker, lock);

    hold_end(broker, claim);
    claim->state = CLAIM_RELEASING;
    call_open(&claim->call, claim->session, &request->id, OP_RELEASE);
    claim->session = NULL;
    if (is_passed_on || lingers) {
        broker->stats.released++;
        release_answer(broker, lock, "released", NULL);
        if (lingers)
            linger_begin(broker, lock);
        else
            handoff_begin(broker, lock);
        return;
    }
    release_begin(broker, lock);
    if (broker->up)
        return;
    broker->stats.release_unconfirmed++;
    release_answer(broker, lock, "unconfirmed", NULL);
}

// Ends the keeping of a lost grant's key: its client gave it back or ended, or its deadline is
// over. The key would expire soon by itself, but a server whose clock was set back would keep it
// for long.
static void release_kept(struct broker *broker, struct lock *lock)
{
    lock->grant = NULL;
    if (lock->gone && !lock_may_be_set_late(lock))
        release_end(broker, lock);
    else
        release_begin(broker, lock);
}

static void release_lost(struct broker *broker, struct session *session, struct claim *claim,
                         const struct request *request)
{
    struct reply *reply = broker_reply(broker, session, &request->id, OP_RELEASE);

    reply->outcome = "was_lost";
    reply->reason = claim->lost_reason;
    if (claim->state == CLAIM_LOST) {
        TAILQ_REMOVE(&session->lost, claim, session_link);
        release_kept(broker, claim->lock);
    } else {
        TAILQ_REMOVE(&session->remembered, claim, session_link);
        session->remembered_count--;
    }
    claim_bury(broker, claim);
}

void release_request(struct broker *broker, struct session *session, const struct request *request)
{
    struct claim *claim = hold_find(session, request);

    if (claim) {
        release_granted(broker, claim, request);
        return;
    }
    claim = session_find_lost(session, request->key, request->owner, request->fence);
    if (claim)
        release_lost(broker, session, claim, request);
    else
        (void)broker_refuse(broker, session, &request->id, OP_RELEASE, ERROR_NOT_HELD);
}

void release_attend(struct broker *broker, struct lock *lock)
{
    if (!broker->up || lock->paused || lock->release_op.op_id)
        return;

    struct backend_op *op =
        broker_start(broker, &lock->release_op, BACKEND_RELEASE, lock, lock->name);

    op->serial = lock->serial;
    op->timeout_ms = lease_command_timeout(lock->main_op_ttl_ms);
    op->queue_ms = acquire_queue_ms(broker, lock);
    op->wants_time = lock->stragglers_limit.is_set;
    lock->release_queues = op->queue_ms > 0;
}

static void release_pause(struct broker *broker, struct lock *lock, int64_t pause_ms)
{
    lock->paused = true;
    alarm_set(&lock->alarm, &broker->lock_alarms, broker->now_ms + pause_ms);
}

// The key does not carry our token now. When it may yet, since a command of ours can still be
// executed late, it is deleted once more after that.
static void release_settle(struct broker *broker, struct lock *lock, int64_t server_ms)
{
    const struct time_limit *limit = &lock->stragglers_limit;
    bool queues = lock->release_queues;

    // Those for whom it queued again have left meanwhile: it leaves the queue as well.
    if (queues && !lock_first_contender(lock)) {
        broker_mark_dirty(broker, lock);
        return;
    }
    if (time_limit_is_over(limit, server_ms, broker->now_ms, lock->ttl_longest_ms)) {
        release_end(broker, lock);
        lock->queues = queues;
        return;
    }

    int64_t pause_ms = broker->retry_max_ms;

    if (server_ms != LB_NONE && limit->server_ms + 1 - server_ms < pause_ms)
        pause_ms = limit->server_ms + 1 - server_ms;
    release_pause(broker, lock, pause_ms);
}

// A server that says no will do so again, to every lock that is to be given back.
static int64_t retry_pause_ms(const struct broker *broker, const struct lock *lock,
                              enum backend_result result)
{
    return result == RESULT_REFUSED ? broker->retry_max_ms
                                    : lease_retry_pause(lock->main_op_ttl_ms);
}

void release_outcome(struct broker *broker, struct lock *lock,
                     const struct backend_outcome *outcome)
{
    broker->stats.turns_given += outcome->gave_turn;
    switch (outcome->result) {
    case RESULT_OK:
        broker->stats.released++;
        release_answer(broker, lock, "released", NULL);
        release_settle(broker, lock, outcome->server_ms);
        break;
    case RESULT_GONE:
        release_answer(broker, lock, "was_lost", "deleted");
        release_settle(broker, lock, outcome->server_ms);
        break;
    case RESULT_STOLEN:
    case RESULT_CONFLICT:
        release_answer(broker, lock, "was_lost", "stolen");
        release_settle(broker, lock, outcome->server_ms);
        break;
    case RESULT_LATE:
    case RESULT_BUSY:
    case RESULT_REFUSED:
    case RESULT_QUARANTINED:
    case RESULT_QUEUED:
    case RESULT_NOT_SENT:
    case RESULT_UNKNOWN:
    default:
        if (lock->grant)
            broker->stats.release_unconfirmed++;
        release_answer(broker, lock, "unconfirmed", NULL);
        release_pause(broker, lock, retry_pause_ms(broker, lock, outcome->result));
        break;
    }
}

// Moves a lost claim to those that are only remembered.
static void claim_remember(struct broker *broker, struct claim *claim)
{
    struct session *session = claim->session;

    TAILQ_REMOVE(&session->lost, claim, session_link);
    TAILQ_INSERT_TAIL(&session->remembered, claim, session_link);
    claim->state = CLAIM_REMEMBERED;
    claim->lock = NULL;
    if (++session->remembered_count <= SESSION_REMEMBERED_MAX)
        return;

    struct claim *oldest = TAILQ_FIRST(&session->remembered);

    TAILQ_REMOVE(&session->remembered, oldest, session_link);
    session->remembered_count--;
    claim_bury(broker, oldest);
}

void release_kept_over(struct broker *broker, struct lock *lock)
{
    if (lock->grant)
        claim_remember(broker, lock->grant);
    release_kept(broker, lock);
}

// The broker closed the connection of a holder, which may still be at work: its key stays until the
// deadline it was told.
static void claim_keep(struct broker *broker, struct claim *claim)
{
    struct lock *lock = claim->lock;

    (void)broker_fact(broker, FACT_NOTICE, "kept", claim);
    hold_end(broker, claim);
    lock_move(lock, LOCK_KEPT);
    lock->grant = NULL;
    lock->kept_until_ms = claim->deadline_ms;
    alarm_set(&lock->alarm, &broker->lock_alarms, lock->kept_until_ms);
    broker_mark_dirty(broker, lock);
    claim_bury(broker, claim);
}

static void claim_end_with_client(struct broker *broker, struct claim *claim)
{
    struct lock *lock = claim->lock;
    struct fact *fact = broker_fact(broker, FACT_INFO, "freed", claim);

    fact->reason = "client_ended";
    fact->ms = broker->now_ms - claim->granted_ms;

    bool is_passed_on = handoff_is_due(broker, lock);

    hold_end(broker, claim);
    lock->grant = NULL;
    if (is_passed_on)
        handoff_begin(broker, lock);
    else
        release_begin(broker, lock);
    claim_bury(broker, claim);
}

static bool release_next_claim(struct broker *broker, struct session *session)
{
    struct claim *claim = session_first_claim(session);

    if (!claim)
        return false;
    if (claim->state == CLAIM_WAITING) {
        call_close(&claim->call);
        acquire_withdraw(broker, claim);
    } else if (session->closed_by_broker) {
        claim_keep(broker, claim);
    } else {
        claim_end_with_client(broker, claim);
    }
    return true;
}

static bool release_next_lost(struct broker *broker, struct session *session)
{
    struct claim *claim = TAILQ_FIRST(&session->lost);

    if (!claim)
        return false;
    TAILQ_REMOVE(&session->lost, claim, session_link);
    if (session->closed_by_broker) {
        claim->lock->grant = NULL;
        broker_mark_dirty(broker, claim->lock);
    } else {
        release_kept(broker, claim->lock);
    }
    claim_bury(broker, claim);
    return true;
}

bool release_next_of_session(struct broker *broker, struct session *session)
{
    if (release_next_claim(broker, session) || release_next_lost(broker, session))
        return true;

    struct claim *claim = TAILQ_FIRST(&session->remembered);

    if (!claim)
        return false;
    TAILQ_REMOVE(&session->remembered, claim, session_link);
    claim_bury(broker, claim);
    return true;
}
