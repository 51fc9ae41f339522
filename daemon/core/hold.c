// Having a lock. A deadline moves only when a renewal was confirmed, counted from before it was
// sent; once `lost` is told nothing revives the grant, whatever arrives later.
#include "daemon/core/hold.h"

#include <stdlib.h>

#include "daemon/core/handoff.h"
#include "daemon/core/lease.h"
#include "daemon/core/release.h"

static const char *const loss_names[] = {
    [LOSS_EXPIRED] = "expired",   [LOSS_DELETED] = "deleted", [LOSS_STOLEN] = "stolen",
    [LOSS_MAX_HOLD] = "max_hold", [LOSS_BROKEN] = "broken",   [LOSS_NOT_RENEWED] = "not_renewed",
    [LOSS_SHUTDOWN] = "shutdown",
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool wants_renewal(const struct lock *lock)
{
    return lock->grant->renew && lock->lease.deadline_ms < lock->grant->cap_ms;
}

static void renewal_set(struct broker *broker, struct lock *lock, int64_t due_ms, int64_t slack_ms)
{
    alarm_set(&lock->alarm, &broker->renewals, due_ms);
    alarm_set(&lock->early_alarm, &broker->early_renewals, due_ms - slack_ms);
}

static void renewal_cancel(struct lock *lock)
{
    alarm_cancel(&lock->alarm);
    alarm_cancel(&lock->early_alarm);
}

static void hold_arm_claim(struct broker *broker, struct lock *lock)
{
    struct claim *claim = lock->grant;
    int64_t due_ms = claim_lost_at(claim);

    // Never in the step that grants: the grant may yet be taken back, untold.
    if (wants_renewal(lock) && !claim->suspect)
        due_ms = least(due_ms, greatest(lease_suspect_at(&lock->lease), broker->now_ms + 1));
    alarm_set(&claim->alarm, &broker->claim_alarms, due_ms);
}

// Sets the alarms of a held lock after its lease changed.
static void hold_arm(struct broker *broker, struct lock *lock)
{
    hold_arm_claim(broker, lock);
    if (lock->main_op.op_id)
        return;
    if (wants_renewal(lock))
        renewal_set(broker, lock, lease_renew_at(&lock->lease),
                    lease_renew_slack(lock->lease.ttl_ms));
    else
        renewal_cancel(lock);
}

static void fill_grant(struct broker *broker, struct reply *reply, const struct claim *claim)
{
    reply->key = claim->key;
    reply->fence = claim->fence;
    reply->ttl_ms = claim->ttl_ms;
    reply->valid_ms = claim->deadline_ms - broker->now_ms;
    reply->deadline_ms = claim->deadline_ms;
}

static void tell_grant(struct broker *broker, struct claim *claim)
{
    struct reply *reply = call_answer(broker, &claim->call);
    struct effect *effect = &broker->effects->items[broker->effects->count - 1];

    fill_grant(broker, reply, claim);
    reply->waited_ms = broker->now_ms - claim->arrived_ms;
    effect->grant_id = claim->id;
    effect->tell_before_ms = claim_lost_at(claim);
    broker_fact(broker, FACT_DEBUG, "granted", claim)->ms = reply->waited_ms;
}

// Says that a wait or a hold took long, if there is a limit and it did.
static void log_if_slow(struct broker *broker, const char *event, const struct claim *claim,
                        int64_t since_ms, int64_t limit_ms)
{
    int64_t took_ms = broker->now_ms - since_ms;

    if (limit_ms > 0 && took_ms >= limit_ms)
        broker_fact(broker, FACT_WARNING, event, claim)->ms = took_ms;
}

static int64_t cap_of(const struct broker *broker, const struct claim *claim)
{
    return claim->max_hold_ms == LB_NONE ? INT64_MAX : broker->now_ms + claim->max_hold_ms;
}

// At the very margin a grant would be lost in the moment in which it is told.
static bool is_worth_telling(const struct broker *broker, const struct claim *claim,
                             const struct lease *lease)
{
    return least(lease->deadline_ms, cap_of(broker, claim)) - broker->now_ms > claim_margin(claim);
}

static void grant_begin(struct broker *broker, struct lock *lock, struct claim *claim,
                        int64_t fence)
{
    broker_unqueue(broker, claim);
    lock->ttl_ms = claim->ttl_ms;
    lock->maybe_set = false;
    lock->gone = false;
    lock->grant = claim;
    lock->run.grants++;
    lock->run.contended_grants++;
    claim->state = CLAIM_GRANTED;
    claim->granted_ms = broker->now_ms;
    claim->cap_ms = cap_of(broker, claim);
    claim->deadline_ms = least(lock->lease.deadline_ms, claim->cap_ms);
    claim->fence = fence;
    claim->suspect = false;
    claim->doubt = NULL;
    lock_move(lock, LOCK_HELD);
    hold_arm(broker, lock);
    broker->held_count++;
    broker->stats.granted++;
    histogram_add(&broker->stats.wait_ms, broker->now_ms - claim->arrived_ms);
    tell_grant(broker, claim);
    log_if_slow(broker, "slow_wait", claim, claim->arrived_ms, broker->slow_wait_ms);
    broker_mark_dirty(broker, lock);
}

bool hold_grant(struct broker *broker, struct lock *lock, struct claim *claim,
                const struct backend_outcome *outcome)
{
    // The key may live longer than this contender asked for: it is told no more than it asked.
    struct lease lease = {
        .sent_ms = outcome->sent_ms,
        .ttl_ms = claim->ttl_ms,
        .deadline_ms = lease_deadline(outcome->sent_ms, claim->ttl_ms),
    };

    lb_assert(claim->ttl_ms <= lock->main_op_ttl_ms);
    if (!is_worth_telling(broker, claim, &lease))
        return false;
    lock->lease = lease;
    grant_begin(broker, lock, claim, outcome->fence);
    if (outcome->fences > 1)
        lock_take_fences(lock, outcome->fence + 1, outcome->fences - 1);
    return true;
}

bool hold_pass(struct broker *broker, struct lock *lock, struct claim *claim)
{
    struct lease lease = lease_inherit(&lock->lease, broker->now_ms, claim->ttl_ms);
    int64_t left_ms = lease.deadline_ms - broker->now_ms;

    if (lock->fences_left == 0 || left_ms < claim->ttl_ms / 2 ||
        !is_worth_telling(broker, claim, &lease))
        return false;
    lock->lease = lease;
    lock->fences_left--;
    grant_begin(broker, lock, claim, lock->fence_next++);
    return true;
}

static struct claim *find_granted(struct session *session, uint64_t grant_id)
{
    struct claim *claim = session_first_claim(session);

    while (claim && (claim->id != grant_id || claim->state != CLAIM_GRANTED))
        claim = session_next_claim(claim);
    return claim;
}

void hold_take_back(struct broker *broker, struct session *session, uint64_t grant_id)
{
    struct claim *claim = find_granted(session, grant_id);

    if (!claim)
        return;

    struct lock *lock = claim->lock;
    struct request_id id = claim->call.id;

    // The key may well be ours still: it is asked for again with the same token.
    if (lock->main_op.op_id) {
        flight_tree_remove(&broker->flights, &lock->main_op);
        lock_main_op_strays(lock);
    }
    lock->grant = NULL;
    lock->maybe_set = true;
    lock_move(lock, LOCK_BLOCKED);
    claim->state = CLAIM_WAITING;
    broker_queue_first(broker, lock, claim);
    call_open(&claim->call, session, &id, OP_ACQUIRE);
    if (claim->is_try)
        claim->wait_until_ms = broker->now_ms + lease_command_timeout(claim->ttl_ms);
    alarm_set(&claim->alarm, &broker->claim_alarms, claim->wait_until_ms);
    broker->held_count--;
    broker->stats.grants_stale++;
    broker_mark_dirty(broker, lock);
}

static void extension_finish(struct broker *broker, struct extension *extension,
                             enum error_code error, const char *reason)
{
    extension->error = error;
    extension->reason = reason;
    TAILQ_INSERT_TAIL(&broker->finished, extension, link);
}

void hold_end(struct broker *broker, struct claim *claim)
{
    struct lock *lock = claim->lock;

    if (lock->extending)
        extension_finish(broker, lock->extending, ERROR_NOT_HELD, NULL);
    lock->extending = NULL;
    while (!TAILQ_EMPTY(&claim->extensions)) {
        struct extension *extension = TAILQ_FIRST(&claim->extensions);

        TAILQ_REMOVE(&claim->extensions, extension, link);
        extension_finish(broker, extension, ERROR_NOT_HELD, NULL);
    }
    alarm_cancel(&claim->alarm);
    session_remove_claim(claim->session, claim);
    broker->held_count--;
    histogram_add(&broker->stats.hold_ms, broker->now_ms - claim->granted_ms);
    log_if_slow(broker, "slow_hold", claim, claim->granted_ms, broker->slow_hold_ms);
}

bool hold_answer_next(struct broker *broker)
{
    struct extension *extension = TAILQ_FIRST(&broker->finished);

    if (!extension)
        return false;
    TAILQ_REMOVE(&broker->finished, extension, link);
    call_refuse(broker, &extension->call, extension->error)->reason = extension->reason;
    graveyard_bury(&broker->graves, &extension->grave);
    return true;
}

static void count_loss(struct stats *stats, enum loss loss)
{
    int64_t *const counters[] = {
        [LOSS_EXPIRED] = &stats->lost_expired,   [LOSS_DELETED] = &stats->lost_deleted,
        [LOSS_STOLEN] = &stats->lost_stolen,     [LOSS_MAX_HOLD] = &stats->lost_max_hold,
        [LOSS_BROKEN] = &stats->lost_broken,     [LOSS_NOT_RENEWED] = &stats->lost_not_renewed,
        [LOSS_SHUTDOWN] = &stats->lost_shutdown,
    };

    ++*counters[loss];
}

void hold_lose(struct broker *broker, struct claim *claim, enum loss loss)
{
    struct lock *lock = claim->lock;
    enum fact_level level = loss == LOSS_SHUTDOWN ? FACT_NOTICE : FACT_WARNING;

    hold_end(broker, claim);
    claim->state = CLAIM_LOST;
    claim->lost_reason = loss_names[loss];
    TAILQ_INSERT_TAIL(&claim->session->lost, claim, session_link);
    if (loss == LOSS_BROKEN)
        claim->deadline_ms = least(claim->deadline_ms, broker->now_ms + claim_margin(claim));

    lock_move(lock, LOCK_KEPT);
    lock->gone = loss == LOSS_DELETED || loss == LOSS_STOLEN;
    lock->kept_until_ms = claim->deadline_ms;
    alarm_set(&lock->alarm, &broker->lock_alarms, lock->kept_until_ms);

    count_loss(&broker->stats, loss);
    broker_notify(broker, claim, NOTICE_LOST, claim->lost_reason);
    broker_fact(broker, level, "lost", claim)->reason = claim->lost_reason;
    broker_mark_dirty(broker, lock);
}

static enum loss loss_at_deadline(const struct claim *claim)
{
    if (claim->cap_ms <= claim->deadline_ms)
        return LOSS_MAX_HOLD;
    return claim->renew ? LOSS_EXPIRED : LOSS_NOT_RENEWED;
}

void hold_alarm(struct broker *broker, struct claim *claim)
{
    if (broker->now_ms >= claim_lost_at(claim)) {
        hold_lose(broker, claim, loss_at_deadline(claim));
        return;
    }

    const char *reason = broker->up ? "no_answer" : "down";

    if (claim->doubt)
        reason = claim->doubt;
    claim->doubt = NULL;
    claim->suspect = true;
    broker->stats.suspect++;
    broker_notify(broker, claim, NOTICE_SUSPECT, reason);
    broker_fact(broker, FACT_WARNING, "suspect", claim)->reason = reason;
    hold_arm_claim(broker, claim->lock); // a renewal keeps the time that was set for it
}

void hold_doubt(struct broker *broker, struct lock *lock, const char *reason)
{
    if (!lock->grant->suspect) {
        lock->grant->doubt = reason;
        alarm_set(&lock->grant->alarm, &broker->claim_alarms, broker->now_ms);
    }
    if (lock->grant->renew && !lock->main_op.op_id)
        renewal_set(broker, lock, broker->now_ms, 0);
}

// Steps that the deadline allows for are added up until it does not any more.
void hold_clock_stepped(struct broker *broker, struct lock *lock, int64_t step_ms)
{
    struct claim *claim = lock->grant;
    struct lease *lease = &lock->lease;

    lease->stepped_ms += step_ms;
    if (lease->stepped_ms <= lease_step_tolerance(lease->ttl_ms))
        return;
    lease->deadline_ms -= lease->stepped_ms;
    lease->stepped_ms = 0;
    claim->deadline_ms = least(claim->deadline_ms, lease->deadline_ms);
    claim->suspect = false; // also who was told so already must hear of the nearer deadline
    hold_doubt(broker, lock, "clock");
}

void hold_renew(struct broker *broker, struct lock *lock)
{
    struct extension *extension = TAILQ_FIRST(&lock->grant->extensions);
    int64_t late_ms = broker->now_ms - lease_renew_at(&lock->lease);
    struct backend_op *op = broker_start(broker, &lock->main_op, BACKEND_RENEW, lock, lock->name);

    lock->extending = extension;
    if (extension)
        TAILQ_REMOVE(&lock->grant->extensions, extension, link);
    else if (late_ms + lease_renew_slack(lock->lease.ttl_ms) >= 0) // else it is for the fences
        histogram_add(&broker->stats.renewal_late_ms, late_ms > 0 ? late_ms : 0);
    lock->main_op_ttl_ms = extension ? extension->ttl_ms : lock->ttl_ms;
    lock->main_op_fences = handoff_fences_wanted(broker, lock, 0);
    op->serial = lock->serial;
    op->fences = lock->main_op_fences;

    // With a shorter ttl than before the key must still live as long as its holder was told, also
    // when it is set anew, or when somebody took its expiry away.
    op->ttl_ms =
        greatest(lock->main_op_ttl_ms, lease_ttl_until(broker->now_ms, lock->lease.deadline_ms));
    op->timeout_ms = lease_command_timeout(least(lock->ttl_ms, lock->main_op_ttl_ms));
    lock->main_op_limit =
        broker_limit(broker, op, least(op->timeout_ms, lock->lease.deadline_ms - broker->now_ms));
    if (op->ttl_ms > lock->ttl_longest_ms)
        lock->ttl_longest_ms = op->ttl_ms;
    renewal_cancel(lock);
}

bool hold_renew_for_extension(struct broker *broker, struct lock *lock)
{
    if (!broker->up || lock->main_op.op_id || TAILQ_EMPTY(&lock->grant->extensions))
        return false;
    hold_renew(broker, lock);
    return true;
}

static void extend_answer(struct broker *broker, struct lock *lock, struct extension *extension)
{
    struct reply *reply = call_answer(broker, &extension->call);

    fill_grant(broker, reply, lock->grant);
    reply->waited_ms = broker->now_ms - extension->arrived_ms;
    broker->stats.extends++;
    graveyard_bury(&broker->graves, &extension->grave);
}

// What was told stays true: a nearer cap does not move a deadline back.
static void extend_cap(struct claim *claim, const struct extension *extension)
{
    if (extension->max_hold_ms == LB_NONE)
        return;
    claim->cap_ms = extension->arrived_ms + extension->max_hold_ms;
    if (claim->cap_ms < claim->deadline_ms)
        claim->cap_ms = claim->deadline_ms;

    // Of the time that it does get: else the margin would shrink with a hold that stays long.
    claim->max_hold_ms = claim->cap_ms - extension->arrived_ms;
}

// A longer ttl has a wider margin. Where the cap leaves no more than that, the grant would be lost
// in the moment in which it is extended: it stays with the ttl that it has.
static void extend_ttl(struct broker *broker, struct lock *lock, const struct extension *extension)
{
    struct claim *claim = lock->grant;
    int64_t old_ttl_ms = claim->ttl_ms;

    claim->ttl_ms = extension->ttl_ms;
    if (claim_lost_at(claim) <= broker->now_ms)
        claim->ttl_ms = old_ttl_ms;
    lock->ttl_ms = claim->ttl_ms;
}

static void lease_renewed(struct lock *lock, int64_t sent_ms)
{
    int64_t deadline_ms = lease_deadline(sent_ms, lock->main_op_ttl_ms);

    lock->lease.sent_ms = sent_ms;
    lock->lease.ttl_ms = lock->main_op_ttl_ms;
    if (deadline_ms > lock->lease.deadline_ms) {
        lock->lease.deadline_ms = deadline_ms;
        lock->lease.stepped_ms = 0;
    }
}

static void fences_refilled(struct broker *broker, struct lock *lock,
                            const struct backend_outcome *outcome)
{
    lock->refill_failed = lock->main_op_fences > 0 && outcome->fences == 0;
    if (outcome->fences == 0)
        return;
    lock_take_fences(lock, outcome->fence, outcome->fences);
    broker_raise_floor(broker, outcome->fence + outcome->fences - 1);
}

static void hold_renewed(struct broker *broker, struct lock *lock, struct extension *extension)
{
    struct claim *claim = lock->grant;
    int64_t deadline_ms;

    // It may have been sent for a grant before this one, with a longer ttl.
    if (!extension && lock->main_op_ttl_ms > claim->ttl_ms)
        lock->lease = lease_inherit(&lock->lease, broker->now_ms, claim->ttl_ms);
    if (extension)
        extend_cap(claim, extension);
    deadline_ms = least(lock->lease.deadline_ms, claim->cap_ms);
    if (deadline_ms > claim->deadline_ms && (claim->renew || extension))
        claim->deadline_ms = deadline_ms;
    if (extension)
        extend_ttl(broker, lock, extension);
    claim->doubt = NULL; // one that this very answer brought up, and settles
    if (claim->suspect) {
        claim->suspect = false;
        broker->stats.recovered++;
        broker_notify(broker, claim, NOTICE_OK, NULL);
        (void)broker_fact(broker, FACT_NOTICE, "ok", claim);
    }
    if (extension)
        extend_answer(broker, lock, extension);
    hold_arm(broker, lock);
}

static void renewal_failed(struct broker *broker, struct lock *lock, bool refused,
                           struct extension *extension)
{
    broker->stats.renewals_failed++;
    lock->refill_failed = true;
    if (extension)
        extension_finish(broker, extension, ERROR_UNAVAILABLE, refused ? "refused" : "down");
    if (wants_renewal(lock))
        renewal_set(broker, lock, broker->now_ms + lease_retry_pause(lock->lease.ttl_ms), 0);
}

// The server's clock is ahead of what was thought: with what is known by now it is asked again at
// once.
static void renewal_late(struct broker *broker, struct lock *lock, struct extension *extension)
{
    broker->stats.renewals_failed++;
    if (extension)
        TAILQ_INSERT_HEAD(&lock->grant->extensions, extension, link);
    if (wants_renewal(lock))
        renewal_set(broker, lock, broker->now_ms, 0);
}

// While the key was missing, somebody may have been granted it, with a fence above the reserved
// ones.
static void reasserted(struct broker *broker, struct lock *lock)
{
    lock->fences_left = 0;
    broker->stats.reasserted++;
    (void)broker_fact(broker, FACT_NOTICE, "reasserted", lock->grant);
}

// The renewal served a grant that has ended since: it may serve the next one.
static void vacant_outcome(struct broker *broker, struct lock *lock,
                           const struct backend_outcome *outcome)
{
    if (outcome->result != RESULT_OK || outcome->was_missing) {
        release_begin(broker, lock);
        return;
    }
    broker->stats.renewals++;
    lease_renewed(lock, outcome->sent_ms);
    fences_refilled(broker, lock, outcome);
}

void hold_outcome(struct broker *broker, struct lock *lock, const struct backend_outcome *outcome)
{
    struct extension *extension = lock->extending;

    lock->extending = NULL;
    if (outcome->result == RESULT_UNKNOWN)
        lock_main_op_strays(lock);
    if (lock->state == LOCK_VACANT)
        vacant_outcome(broker, lock, outcome);
    if (lock->state != LOCK_HELD) // the grant ended meanwhile: no reply revives it
        return;
    switch (outcome->result) {
    case RESULT_OK:
        if (outcome->was_missing)
            reasserted(broker, lock);
        broker->stats.renewals++;
        lease_renewed(lock, outcome->sent_ms);
        fences_refilled(broker, lock, outcome);
        hold_renewed(broker, lock, extension);
        break;
    case RESULT_LATE:
        renewal_late(broker, lock, extension);
        break;
    case RESULT_GONE:
    case RESULT_STOLEN:
    case RESULT_CONFLICT:
        lock->extending = extension;
        hold_lose(broker, lock->grant, outcome->result == RESULT_GONE ? LOSS_DELETED : LOSS_STOLEN);
        return;
    case RESULT_BUSY:
    case RESULT_REFUSED:
    case RESULT_QUARANTINED:
    case RESULT_QUEUED:
    case RESULT_NOT_SENT:
    case RESULT_UNKNOWN:
    default:
        renewal_failed(broker, lock, outcome->result == RESULT_REFUSED, extension);
        break;
    }
    (void)hold_renew_for_extension(broker, lock);
}
