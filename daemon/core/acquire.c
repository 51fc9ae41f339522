// Getting a lock. All waiting happens here, in one queue a key: the backend sees one contender
// however many wait. A token (serial) is kept over retries until a grant with it ends or it is
// deleted, so a retry of an unanswered acquire can only refresh what the first one set.
#include "daemon/core/acquire.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/core/handoff.h"
#include "daemon/core/hold.h"
#include "daemon/core/inspect.h"
#include "daemon/core/lease.h"
#include "daemon/core/release.h"

// How soon to ask again when an acquire got no answer but the link still stands.
#define RETRY_UNANSWERED_MS 20

// The least time for which a broker's place in the queue of a key is kept.
#define QUEUE_LEAST_MS 3000

// The first pause between two tries where nobody tells when the key is free; it doubles each time.
#define POLL_FIRST_MS 50

// Who is in no queue can only look now and then whether the key is free: programs that are no
// brokers, and brokers that would not hear of their turn. For so long after one was seen to have
// the key, it is left free for a moment after each run of grants: 10 to 40 ms.
#define OUTSIDER_RECENT_MS    10000
#define OUTSIDER_GAP_LEAST_MS 10
#define OUTSIDER_GAP_MORE_MS  30

// How often a broker looks that would not hear of its turn, and how often it leaves a key free for
// others like it.
#define DEAF_POLL_MAX_MS 250
#define DEAF_GAP_EACH_MS 1000

// The moment for which it is left free after a run of grants that nothing else broke.
#define YIELD_GAP_MS 25

// Ends of one and the same quarantine, as answers tell it, lie no further apart than this.
#define QUARANTINE_SAME_MS 500

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ttl_wanted(const struct broker *broker, const struct request *request)
{
    if (request->ttl_ms != LB_NONE)
        return request->ttl_ms;

    // A lease longer than the hold may last is of no use to its holder.
    if (request->max_hold_ms != LB_NONE && request->max_hold_ms < broker->ttl_max_ms)
        return request->max_hold_ms < LB_TTL_MIN_MS ? LB_TTL_MIN_MS : request->max_hold_ms;
    return broker->ttl_max_ms;
}

static int64_t wait_wanted(const struct broker *broker, const struct request *request)
{
    if (request->wait_ms < 0 || request->wait_ms > broker->max_wait_ms)
        return broker->max_wait_ms;
    return request->wait_ms;
}

// True when the request was refused.
static bool acquire_refuse(struct broker *broker, struct session *session,
                           const struct request *request)
{
    if (request->on_lost != ON_LOST_EVENT) {
        broker_refuse_field(broker, session, request, "on_lost",
                            "this broker cannot signal processes");
        return true;
    }
    if (broker_refuse_ttl(broker, session, request))
        return true;
    if (broker->draining) {
        (void)broker_refuse(broker, session, &request->id, OP_ACQUIRE, ERROR_DRAINING);
        return true;
    }
    if (session_find_claim(session, request->key, request->owner)) {
        (void)broker_refuse(broker, session, &request->id, OP_ACQUIRE, ERROR_ALREADY_HELD);
        return true;
    }
    return false;
}

// True when too many wait already, and the request was refused.
static bool refuse_waiter(struct broker *broker, struct session *session,
                          const struct request *request)
{
    const struct lock *lock = lock_tree_find(&broker->locks, request->key);
    const char *limit = NULL;

    if (request->wait_ms == 0)
        return false;
    if (broker->waiters_key_max && lock && lock_waiters_count(lock) >= broker->waiters_key_max)
        limit = "waiters_key_max";
    else if (broker->waiters_client_max &&
             session->waiting_count >= (size_t)broker->waiters_client_max)
        limit = "waiters_client_max";
    if (limit)
        broker_refuse_quota(broker, session, request, limit);
    return limit != NULL;
}

static struct lock *lock_find_or_add(struct broker *broker, const char *name)
{
    struct lock *lock = lock_tree_find(&broker->locks, name);

    if (lock)
        return lock;
    lock = lock_new(name);
    if (!lock)
        return NULL;
    lock_tree_add(&broker->locks, lock);
    broker->locks_count++;
    broker_mark_dirty(broker, lock);
    return lock;
}

void acquire_request(struct broker *broker, struct session *session, const struct request *request)
{
    broker->stats.acquires++;
    if (acquire_refuse(broker, session, request))
        return;

    if (refuse_waiter(broker, session, request))
        return;

    // A lock without a contender is freed when it is attended to, should the claim fail.
    struct lock *lock = lock_find_or_add(broker, request->key);
    struct claim *claim =
        lock ? claim_new(request, session, broker_new_id(broker), broker->now_ms) : NULL;

    if (!claim) {
        broker_refuse_memory(broker, session, request);
        return;
    }
    claim->ttl_ms = ttl_wanted(broker, request);
    claim->is_try = request->wait_ms == 0;

    // A try waits too, but only for the answer to its one question.
    claim->wait_until_ms = broker->now_ms + (claim->is_try ? lease_command_timeout(claim->ttl_ms)
                                                           : wait_wanted(broker, request));
    call_open(&claim->call, session, &request->id, OP_ACQUIRE);
    session_add_claim(session, claim);
    broker_queue(broker, lock, claim);
    alarm_set(&claim->alarm, &broker->claim_alarms, claim->wait_until_ms);
    broker_mark_dirty(broker, lock);
}

void acquire_withdraw(struct broker *broker, struct claim *claim)
{
    struct lock *lock = claim->lock;

    alarm_cancel(&claim->alarm);
    broker_unqueue(broker, claim);
    session_remove_claim(claim->session, claim);
    graveyard_bury(&broker->graves, &claim->grave);
    broker_mark_dirty(broker, lock);
}

void acquire_cancel_request(struct broker *broker, struct session *session,
                            const struct request *request)
{
    struct call *call = session_find_call(session, &request->target);

    if (!call || call->op != OP_ACQUIRE) {
        (void)broker_refuse(broker, session, &request->id, OP_CANCEL, ERROR_NOT_PENDING);
        return;
    }

    struct claim *claim = LB_CONTAINER_OF(call, struct claim, call);

    broker->stats.cancelled++;
    (void)broker_reply(broker, session, &request->id, OP_CANCEL);
    (void)call_refuse(broker, call, ERROR_CANCELLED);
    acquire_withdraw(broker, claim);
}

// True when the key may be set to a token of ours without a grant.
static bool lock_may_carry_token(const struct lock *lock)
{
    return lock->maybe_set || lock->state == LOCK_ACQUIRING || lock->state == LOCK_VACANT ||
           lock->state == LOCK_RELEASING;
}

static void refuse_unavailable(struct broker *broker, struct claim *claim, const char *reason)
{
    struct reply *reply = call_refuse(broker, &claim->call, ERROR_UNAVAILABLE);

    broker->stats.unavailable++;
    reply->reason = reason;
    reply->waited_ms = broker->now_ms - claim->arrived_ms;
    if (lock_may_carry_token(claim->lock))
        reply->may_block_ms = lock_frees_within_ms(claim->lock, broker->now_ms);
    acquire_withdraw(broker, claim);
}

static void refuse_held(struct broker *broker, struct claim *claim, enum error_code error)
{
    struct lock *lock = claim->lock;
    struct reply *reply = call_refuse(broker, &claim->call, error);

    reply->waited_ms = error == ERROR_TIMEOUT ? broker->now_ms - claim->arrived_ms : LB_NONE;
    lock_describe_holder(broker, lock, broker_reply_holder(broker, reply));
    acquire_withdraw(broker, claim);
}

static void refuse_quarantine(struct broker *broker, struct claim *claim)
{
    int64_t ends_in_ms = claim->lock->verdict_ms - broker->now_ms;

    refuse_unavailable(broker, claim, "quarantine");
    broker->effects->items[broker->effects->count - 1].reply.ends_in_ms =
        ends_in_ms > 0 ? ends_in_ms : 0;
}

static void refuse_by_verdict(struct broker *broker, struct claim *claim, enum verdict_kind verdict)
{
    switch (verdict) {
    case VERDICT_CONFLICT:
        (void)call_refuse(broker, &claim->call, ERROR_CONFLICT);
        acquire_withdraw(broker, claim);
        break;
    case VERDICT_REFUSED:
        refuse_unavailable(broker, claim, "refused");
        break;
    case VERDICT_QUARANTINE:
        refuse_quarantine(broker, claim);
        break;
    case VERDICT_DOWN:
        refuse_unavailable(broker, claim, "down");
        break;
    case VERDICT_NONE:
    case VERDICT_BUSY:
    default:
        broker->stats.busy++;
        refuse_held(broker, claim, ERROR_BUSY);
        break;
    }
}

void acquire_time_over(struct broker *broker, struct claim *claim)
{
    const struct lock *lock = claim->lock;
    enum verdict_kind verdict = lock->verdict == VERDICT_NONE ? lock->last_verdict : lock->verdict;

    if (!broker->up || claim->is_try || verdict == VERDICT_DOWN) {
        refuse_unavailable(broker, claim, "down");
    } else if (verdict == VERDICT_REFUSED || verdict == VERDICT_QUARANTINE) {
        refuse_by_verdict(broker, claim, verdict);
    } else {
        broker->stats.timeouts++;
        refuse_held(broker, claim, ERROR_TIMEOUT);
    }
}

// The next contender that the lock's verdict answers, or NULL.
static struct claim *verdict_next(const struct lock *lock)
{
    struct claim *claim =
        lock->verdict == VERDICT_CONFLICT ? lock_first_contender(lock) : TAILQ_FIRST(&lock->tries);

    if (lock->verdict == VERDICT_NONE || !claim || claim->id > lock->asked_up_to)
        return NULL;
    return claim;
}

// Some grant of this broker's is in the way, or will be.
static bool lock_is_taken(const struct lock *lock)
{
    bool is_vacant = lock->state == LOCK_VACANT && lock->lingers_until_ms == LB_NONE;

    return lock->state == LOCK_HELD || is_vacant || lock->state == LOCK_KEPT;
}

// Whatever ends the pause, as the link, a turn or a break does, gives a reason to ask anew.
static bool busy_is_recent(const struct broker *broker, const struct lock *lock)
{
    return lock->state == LOCK_BLOCKED && lock->verdict == VERDICT_BUSY && lock->paused &&
           broker->now_ms - lock->busy_ms < broker->busy_cache_ms;
}

bool acquire_answer_next(struct broker *broker, struct lock *lock)
{
    struct claim *first = lock_first_contender(lock);
    struct claim *try = TAILQ_FIRST(&lock->tries);
    struct claim *judged = verdict_next(lock);

    if (broker->draining && first) {
        (void)call_refuse(broker, &first->call, ERROR_DRAINING);
        acquire_withdraw(broker, first);
    } else if (try && (lock_is_taken(lock) || busy_is_recent(broker, lock))) {
        broker->stats.busy++;
        refuse_held(broker, try, ERROR_BUSY);
    } else if (try && !broker->up && try->id <= broker->down_up_to) {
        refuse_unavailable(broker, try, "down");
    } else if (judged) {
        refuse_by_verdict(broker, judged, lock->verdict);
    } else {
        return false;
    }
    return true;
}

// A place in the queue outlives some tries that get no answer.
int64_t acquire_queue_ms(const struct broker *broker, const struct lock *lock)
{
    int64_t ms = 3 * broker->retry_max_ms;

    if (!broker->hears || TAILQ_EMPTY(&lock->waiters))
        return 0;
    return ms > QUEUE_LEAST_MS ? ms : QUEUE_LEAST_MS;
}

static void acquire_send(struct broker *broker, struct lock *lock)
{
    const struct claim *first = lock_first_contender(lock);

    if (lock->main_op.op_id) // a renewal of an ended hold: what it brings is no longer wanted
        flight_tree_remove(&broker->flights, &lock->main_op);
    if (!lock->serial)
        lock->serial = broker_new_id(broker);

    struct backend_op *op = broker_start(broker, &lock->main_op, BACKEND_ACQUIRE, lock, lock->name);

    op->serial = lock->serial;
    op->ttl_ms = first->ttl_ms;
    op->timeout_ms = lease_command_timeout(first->ttl_ms);
    op->fences = handoff_fences_wanted(broker, lock, 1);
    lock->main_op_fences = op->fences;
    op->queue_ms = acquire_queue_ms(broker, lock);
    op->barges = !broker->hears && !TAILQ_EMPTY(&lock->waiters);
    lock->main_op_queues = op->queue_ms > 0;
    lock->turn_came = false;
    broker->stats.attempts++;
    lock->main_op_ttl_ms = first->ttl_ms;
    lock->main_op_limit = broker_limit(broker, op, op->timeout_ms);
    if (!lock->maybe_set)
        lock->ttl_longest_ms = 0;
    if (first->ttl_ms > lock->ttl_longest_ms)
        lock->ttl_longest_ms = first->ttl_ms;
    lock->last_verdict = lock->verdict;
    lock->verdict = VERDICT_NONE;
    lock->asked_up_to = broker->next_id - 1;
}

// A try that came after the last question was put: it must be asked anew at once, since the answer
// on its way may be older than the try.
static bool has_new_try(const struct lock *lock)
{
    const struct claim *newest = TAILQ_LAST(&lock->tries, claim_list);

    return newest && newest->id > lock->asked_up_to;
}

// Remembers who holds the key elsewhere. Without memory nobody is known: the claim is still told
// that the lock is busy.
static void lock_set_rival(struct broker *broker, struct lock *lock, const struct holder *holder)
{
    if (!lock->rival)
        lock->rival = calloc(1, sizeof(*lock->rival));
    if (!lock->rival)
        return;
    lock->rival->kind = holder->kind;
    lock->rival->expires_ms = LB_NONE;
    if (!holder->without_expiry && holder->ttl_left_ms != LB_NONE)
        lock->rival->expires_ms = broker->now_ms + holder->ttl_left_ms;
    lock->rival->host[0] = '\0';
    if (holder->host)
        (void)snprintf(lock->rival->host, sizeof(lock->rival->host), "%s", holder->host);
}

// Blocks the lock for `pause_ms`. Jitter only shortens the pause, so that a key is never waited for
// longer than it lives.
static void lock_block(struct broker *broker, struct lock *lock, enum verdict_kind verdict,
                       int64_t pause_ms)
{
    int64_t longest = pause_ms > broker->retry_max_ms ? broker->retry_max_ms : pause_ms;
    int64_t shorter = (int64_t)rng_below(&broker->rng, (uint64_t)longest / 10 + 1);

    if (lock->turn_came) // the answer may be older than that
        longest = shorter = 0;
    lock->verdict = verdict;
    lock_move(lock, LOCK_BLOCKED);
    lock->paused = true;
    alarm_set(&lock->alarm, &broker->lock_alarms,
              broker->now_ms + (longest - shorter > 1 ? longest - shorter : 1));
    broker_mark_dirty(broker, lock);
}

static bool outsider_is_recent(const struct broker *broker, const struct lock *lock)
{
    return broker->now_ms < lock->outsider_until_ms;
}

static int64_t outsider_gap_ms(struct broker *broker)
{
    return OUTSIDER_GAP_LEAST_MS + (int64_t)rng_below(&broker->rng, OUTSIDER_GAP_MORE_MS + 1);
}

// For how long to leave the key free after a run of grants, for those who cannot queue for it.
static int64_t gap_after_run_ms(struct broker *broker, const struct lock *lock)
{
    const struct run *run = &lock->run;

    if (broker->fence_block <= 1 || run->since_ms == LB_NONE)
        return 0;
    if (outsider_is_recent(broker, lock))
        return outsider_gap_ms(broker);
    if (run->grants <= 1 || broker->yield_after_ms == 0)
        return 0;
    if (!broker->hears && broker->now_ms - lock->gap_ms >= DEAF_GAP_EACH_MS)
        return YIELD_GAP_MS;
    return broker->now_ms - run->since_ms >= broker->yield_after_ms ? YIELD_GAP_MS : 0;
}

// A waiter that came when there was none: nobody has asked, nor queued, for it yet.
static bool has_new_waiter(const struct lock *lock)
{
    const struct claim *first = TAILQ_FIRST(&lock->waiters);

    return lock->verdict == VERDICT_BUSY && first && first->id > lock->asked_up_to;
}

bool acquire_remembers_busy(struct broker *broker, struct lock *lock)
{
    int64_t until_ms = lock->busy_ms + broker->busy_cache_ms;

    if (!busy_is_recent(broker, lock))
        return false;
    if (lock->rival && lock->rival->expires_ms != LB_NONE)
        until_ms = least(until_ms, lock->rival->expires_ms);
    alarm_set(&lock->alarm, &broker->lock_alarms, until_ms);
    return true;
}

void acquire_again(struct broker *broker, struct lock *lock)
{
    acquire_send(broker, lock);
    lock_move(lock, LOCK_ACQUIRING);
}

void acquire_attend(struct broker *broker, struct lock *lock)
{
    if (!broker->up || (lock->paused && !has_new_try(lock) && !has_new_waiter(lock)))
        return;

    int64_t gap_ms = lock->state == LOCK_IDLE ? gap_after_run_ms(broker, lock) : 0;

    lock->run = (struct run){.since_ms = LB_NONE};
    if (gap_ms == 0) {
        acquire_again(broker, lock);
        return;
    }
    lock->gap_ms = broker->now_ms;
    lock->asked_up_to = broker->next_id - 1; // they know of the gap
    lock_block(broker, lock, VERDICT_NONE, gap_ms);
}

void acquire_turn(struct broker *broker, struct lock *lock)
{
    lock->turn_came = lock->state == LOCK_ACQUIRING;
    if (lock->state != LOCK_BLOCKED)
        return;
    broker->stats.turns_taken++;
    if (outsider_is_recent(broker, lock)) {
        alarm_set(&lock->alarm, &broker->lock_alarms, broker->now_ms + outsider_gap_ms(broker));
        return;
    }
    lock->paused = false;
    broker_mark_dirty(broker, lock);
}

static void lock_forget_rival(struct broker *broker, struct lock *lock)
{
    if (lock->rival)
        graveyard_bury(&broker->graves, &lock->rival->grave);
    lock->rival = NULL;
}

// A grant that was got with the token after others of the same run does not begin a new one.
static void run_begin(struct broker *broker, struct lock *lock, bool others_queue)
{
    bool is_contended = others_queue || lock->run.is_contended || !broker->hears ||
                        outsider_is_recent(broker, lock);

    if (lock->run.since_ms == LB_NONE)
        lock->run = (struct run){.since_ms = broker->now_ms};
    if (is_contended)
        lock_contend(lock, broker->now_ms);
}

static void acquire_got(struct broker *broker, struct lock *lock,
                        const struct backend_outcome *outcome)
{
    struct claim *first = lock_first_contender(lock);

    int64_t count = outcome->fences > 1 ? outcome->fences : 1;

    lock_forget_rival(broker, lock);
    lock->maybe_set = true;
    lock->queues = false;
    lock->poll_ms = 0;
    lock->refill_failed = count < lock->main_op_fences;
    broker_raise_floor(broker, outcome->fence + count - 1);
    run_begin(broker, lock, outcome->others_queue);
    if (!first) {
        release_begin(broker, lock);
        return;
    }

    // A lease shorter than the first contender asked for, or one with too little left to be told,
    // is refreshed first: the acquire is sent once more with the same token.
    if (first->ttl_ms > lock->main_op_ttl_ms || !hold_grant(broker, lock, first, outcome))
        acquire_send(broker, lock);
}

// How long to wait for a key that another has: for its expiry, unless that is far or unknown. A
// broker tells when it gives the key back, others do not.
static int64_t busy_pause(const struct broker *broker, struct lock *lock,
                          const struct holder *holder)
{
    int64_t pause_ms = broker->retry_max_ms;

    if (!holder->without_expiry && holder->ttl_left_ms != LB_NONE)
        pause_ms = least(pause_ms, holder->ttl_left_ms);
    if (broker->hears && holder->kind != HOLDER_FOREIGN)
        return pause_ms;
    if (!broker->hears)
        pause_ms = least(pause_ms, DEAF_POLL_MAX_MS);
    lock->poll_ms = lock->poll_ms ? least(2 * lock->poll_ms, broker->retry_max_ms) : POLL_FIRST_MS;
    return least(pause_ms, lock->poll_ms);
}

static void acquire_busy(struct broker *broker, struct lock *lock, const struct holder *holder)
{
    lock_set_rival(broker, lock, holder);
    lock->busy_ms = broker->now_ms;
    if (holder->kind == HOLDER_FOREIGN || !broker->hears)
        lock_expect_outsider(lock, broker->now_ms + OUTSIDER_RECENT_MS);
    lock_block(broker, lock, VERDICT_BUSY, busy_pause(broker, lock, holder));
}

// The log says once that, and for how long, nothing new is granted.
static void quarantine_tell(struct broker *broker, int64_t ends_in_ms)
{
    int64_t until_ms = broker->now_ms + ends_in_ms;

    if (until_ms <= broker->quarantine_until_ms + QUARANTINE_SAME_MS)
        return;
    broker->quarantine_until_ms = until_ms;
    broker_fact(broker, FACT_WARNING, "quarantine", NULL)->ms = ends_in_ms;
}

void acquire_outcome(struct broker *broker, struct lock *lock,
                     const struct backend_outcome *outcome)
{
    bool was_looked_at = outcome->result == RESULT_BUSY || outcome->result == RESULT_QUEUED ||
                         outcome->result == RESULT_UNKNOWN;

    lock->queues = lock->queues || (lock->main_op_queues && was_looked_at);
    switch (outcome->result) {
    case RESULT_OK:
        acquire_got(broker, lock, outcome);
        break;
    case RESULT_BUSY:
        acquire_busy(broker, lock, &outcome->holder);
        break;
    case RESULT_QUEUED:
        lock_forget_rival(broker, lock);
        lock_block(broker, lock, VERDICT_BUSY, outcome->ends_in_ms);
        break;
    case RESULT_CONFLICT:
        lock_block(broker, lock, VERDICT_CONFLICT, 0);
        break;
    case RESULT_REFUSED:
        lock_block(broker, lock, VERDICT_REFUSED, broker->retry_max_ms);
        break;
    case RESULT_QUARANTINED:
        quarantine_tell(broker, outcome->ends_in_ms);
        lock->verdict_ms = broker->now_ms + outcome->ends_in_ms;
        lock_block(broker, lock, VERDICT_QUARANTINE, outcome->ends_in_ms);
        break;
    case RESULT_LATE: // with what is known of the server's clock by now it will not be late again
    case RESULT_NOT_SENT:
        lock_block(broker, lock, VERDICT_NONE, RETRY_UNANSWERED_MS);
        break;
    case RESULT_GONE:
    case RESULT_STOLEN:
    case RESULT_UNKNOWN:
    default:
        lock->maybe_set = true;
        lock_main_op_strays(lock);
        lock_block(broker, lock, VERDICT_DOWN, RETRY_UNANSWERED_MS);
        break;
    }
}
