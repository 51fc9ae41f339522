// The step: sweep, then one event, then what follows from it. Each transition makes a bounded
// number of effects, so the sweep stops between two transitions when the effects are nearly full
// and goes on at the next call; nothing in here can overflow and nothing is dropped.
#include "daemon/core/broker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/acquire.h"
#include "daemon/core/book.h"
#include "daemon/core/contention.h"
#include "daemon/core/handoff.h"
#include "daemon/core/hold.h"
#include "daemon/core/inspect.h"
#include "daemon/core/release.h"

// As many as share a command of the Redis backend. Later than that they go out all the same.
#define RENEWALS_A_MS    100
#define RENEWALS_LATE_MS 20

static void copy_text(char (*target)[BOOK_TEXT_MAX + 1], const char *text)
{
    (void)snprintf(*target, sizeof(*target), "%s", text ? text : "");
}

static void broker_configure(struct broker *broker, const struct broker_config *config)
{
    broker->ttl_max_ms = config->ttl_max_ms;
    broker->max_wait_ms = config->max_wait_ms;
    broker->retry_max_ms = config->retry_max_ms;
    broker->requests_max = config->requests_max;
    broker->waits_after_loss = config->waits_after_loss;
    broker->fence_block = config->fence_block;
    broker->handoff_grants_max = config->handoff_grants_max;
    broker->handoff_time_max_ms = config->handoff_time_max_ms;
    broker->yield_after_ms = config->yield_after_ms;
    broker->linger_ms = config->linger_ms;
    broker->busy_cache_ms = config->busy_cache_ms;
    broker->waiters_key_max = config->waiters_key_max;
    broker->waiters_client_max = config->waiters_client_max;
    broker->slow_wait_ms = config->slow_wait_ms;
    broker->slow_hold_ms = config->slow_hold_ms;
    if (!config->waits_after_loss)
        broker->quarantine_until_ms = 0;
    if (config->ttl_max_ms > broker->loss_ttl_ms)
        broker->loss_ttl_ms = config->ttl_max_ms;
    broker->own_uid = config->own_uid;
    copy_text(&broker->server, config->server);
    copy_text(&broker->instance, config->instance);
    copy_text(&broker->host, config->host);
    copy_text(&broker->backend_kind, config->backend_kind);
}

int broker_new(const struct broker_config *config, uint64_t seed, struct broker **ret_broker)
{
    struct broker *broker = calloc(1, sizeof(*broker));

    if (!broker)
        return -ENOMEM;
    broker_configure(broker, config);
    rng_init(&broker->rng, seed);
    broker->next_id = 1;
    SLIST_INIT(&broker->graves);
    TAILQ_INIT(&broker->dirty);
    TAILQ_INIT(&broker->closing);
    TAILQ_INIT(&broker->finished);
    alarm_queue_init(&broker->claim_alarms);
    alarm_queue_init(&broker->lock_alarms);
    alarm_queue_init(&broker->renewals);
    alarm_queue_init(&broker->early_renewals);
    *ret_broker = broker;
    return 0;
}

static void lock_free(struct broker *broker, struct lock *lock)
{
    if (lock->main_op.op_id)
        flight_tree_remove(&broker->flights, &lock->main_op);
    alarm_cancel(&lock->alarm);
    alarm_cancel(&lock->early_alarm);
    lock_tree_remove(&broker->locks, lock);
    broker->locks_count--;
    if (lock->rival)
        graveyard_bury(&broker->graves, &lock->rival->grave);
    graveyard_bury(&broker->graves, &lock->grave);
}

// Keeps owed_count in step with the lock.
static void lock_account(struct broker *broker, struct lock *lock)
{
    bool owed = lock_is_owed(lock);

    if (owed != lock->owed)
        broker->owed_count += owed ? 1 : (size_t)-1;
    lock->owed = owed;
}

static bool attend_unheld(struct broker *broker, struct lock *lock)
{
    if (lock_first_contender(lock)) {
        acquire_attend(broker, lock);
        return false;
    }
    if (lock->state != LOCK_BLOCKED)
        return false;
    if (lock->maybe_set)
        release_begin(broker, lock);
    else if (lock->queues && broker->up) // without a link it ends by itself
        release_place(broker, lock);
    else if (acquire_remembers_busy(broker, lock))
        return false;
    else
        lock_move(lock, LOCK_IDLE);
    return true;
}

// Does the next thing that the lock's state asks for. False when there is nothing more.
static bool attend_once(struct broker *broker, struct lock *lock)
{
    if (acquire_answer_next(broker, lock))
        return true;
    switch (lock->state) {
    case LOCK_IDLE:
    case LOCK_BLOCKED:
        return attend_unheld(broker, lock);
    case LOCK_HELD:
        if (!broker->draining)
            return hold_renew_for_extension(broker, lock) || handoff_refill(broker, lock);
        hold_lose(broker, lock->grant, LOSS_SHUTDOWN);
        return true;
    case LOCK_VACANT:
        return handoff_attend(broker, lock);
    case LOCK_RELEASING:
        release_attend(broker, lock);
        return false;
    case LOCK_ACQUIRING:
    case LOCK_KEPT:
    default:
        return false;
    }
}

static void attend(struct broker *broker, struct lock *lock)
{
    if (attend_once(broker, lock))
        return;
    TAILQ_REMOVE(&broker->dirty, lock, dirty_link);
    lock->dirty = false;
    lock_account(broker, lock);
    if (lock->state == LOCK_IDLE && !lock_first_contender(lock))
        lock_free(broker, lock);
}

static void claim_alarm_fired(struct broker *broker, struct alarm *alarm)
{
    struct claim *claim = LB_CONTAINER_OF(alarm, struct claim, alarm);

    if (claim->state == CLAIM_WAITING)
        acquire_time_over(broker, claim);
    else
        hold_alarm(broker, claim);
}

static void lock_alarm_fired(struct broker *broker, struct alarm *alarm)
{
    struct lock *lock = LB_CONTAINER_OF(alarm, struct lock, alarm);

    alarm_cancel(alarm);
    if (lock->state == LOCK_KEPT)
        release_kept_over(broker, lock);
    if (lock->state == LOCK_BLOCKED && lock_first_contender(lock))
        broker->stats.polls++;
    lock->paused = false;
    broker_mark_dirty(broker, lock);
}

static bool sweep_alarm(struct broker *broker)
{
    struct alarm *claim_alarm = alarm_queue_first(&broker->claim_alarms);
    struct alarm *lock_alarm = alarm_queue_first(&broker->lock_alarms);

    if (claim_alarm && claim_alarm->due_ms <= broker->now_ms)
        claim_alarm_fired(broker, claim_alarm);
    else if (lock_alarm && lock_alarm->due_ms <= broker->now_ms)
        lock_alarm_fired(broker, lock_alarm);
    else
        return false;
    return true;
}

// True when enough renewals went out in this millisecond, and none is late: thousands at a time
// would keep Redis from everybody else until the last of them is done.
static bool renewals_are_paced(const struct broker *broker)
{
    const struct alarm *due = alarm_queue_first(&broker->renewals);

    return broker->paced_ms == broker->now_ms && broker->paced_count >= RENEWALS_A_MS &&
           (!due || broker->now_ms - due->due_ms < RENEWALS_LATE_MS);
}

// Once one renewal is due, all that would be due within their slack go with it.
static bool sweep_renewal(struct broker *broker)
{
    struct alarm *due = alarm_queue_first(&broker->renewals);
    struct alarm *early = alarm_queue_first(&broker->early_renewals);

    if (due && due->due_ms <= broker->now_ms)
        broker->batching = true;
    if (!broker->up || !early || early->due_ms > broker->now_ms)
        broker->batching = false;
    if (!broker->batching || renewals_are_paced(broker))
        return false;
    if (broker->paced_ms != broker->now_ms)
        broker->paced_count = 0;
    broker->paced_ms = broker->now_ms;
    broker->paced_count++;
    hold_renew(broker, LB_CONTAINER_OF(early, struct lock, early_alarm));
    return true;
}

static bool sweep_closing(struct broker *broker)
{
    struct session *session = TAILQ_FIRST(&broker->closing);

    if (!session)
        return false;
    if (release_next_of_session(broker, session))
        return true;
    TAILQ_REMOVE(&broker->closing, session, closing_link);
    graveyard_bury(&broker->graves, &session->grave);
    return true;
}

static bool sweep_dirty(struct broker *broker)
{
    if (TAILQ_EMPTY(&broker->dirty))
        return false;
    attend(broker, TAILQ_FIRST(&broker->dirty));
    return true;
}

// Does all that is due. False when the effects filled up first.
static bool broker_sweep(struct broker *broker)
{
    while (broker_has_room(broker)) {
        if (!sweep_alarm(broker) && !hold_answer_next(broker) && !sweep_renewal(broker) &&
            !sweep_closing(broker) && !sweep_dirty(broker))
            return true;
    }
    return false;
}

static void session_opened(struct broker *broker, const struct event *event)
{
    struct session *session = session_new(event->session, &event->peer);

    if (!session) {
        broker->stats.out_of_memory++;
        broker_close(broker, event->session);
        return;
    }
    session_tree_add(&broker->sessions, session);
    broker->sessions_count++;
    broker->stats.sessions_opened++;
}

static void session_closed(struct broker *broker, struct session *session, bool closed_by_broker)
{
    session->closed = true;
    session->closed_by_broker = closed_by_broker;
    session_forget_calls(session);
    session_tree_remove(&broker->sessions, session);
    broker->sessions_count--;
    broker->stats.sessions_closed++;
    TAILQ_INSERT_TAIL(&broker->closing, session, closing_link);
}

static void handle_op(struct broker *broker, struct session *session, const struct request *request)
{
    static void (*const handlers[])(struct broker *, struct session *, const struct request *) = {
        [OP_HELLO] = hello_request,        [OP_PING] = ping_request,
        [OP_ACQUIRE] = acquire_request,    [OP_RELEASE] = release_request,
        [OP_EXTEND] = hold_extend_request, [OP_CHECK] = hold_check_request,
        [OP_QUERY] = query_request,        [OP_CANCEL] = acquire_cancel_request,
        [OP_BREAK] = break_request,        [OP_LIST] = list_request,
        [OP_STATS] = stats_request,
    };

    lb_assert(request->op > OP_NONE && request->op < LB_ARRAY_LENGTH(handlers));
    handlers[request->op](broker, session, request);
}

// Operations that are answered later and take memory until then. A release does not: giving back
// must always be possible.
static bool op_may_pend(enum op op)
{
    return op == OP_ACQUIRE || op == OP_EXTEND || op == OP_QUERY || op == OP_BREAK;
}

static void session_request(struct broker *broker, struct session *session,
                            const struct request *request)
{
    static const struct request_id no_id = {.kind = REQUEST_ID_NONE};

    broker->stats.requests++;
    if (session_find_call(session, &request->id)) {
        struct reply *reply = broker_refuse(broker, session, &no_id, request->op, ERROR_BAD_FIELD);

        reply->field = "id";
        reply->message = "a request with this id is still pending on this connection";
    } else if (op_may_pend(request->op) && session->calls_count >= (size_t)broker->requests_max) {
        broker_refuse_quota(broker, session, request, "requests_max");
    } else {
        handle_op(broker, session, request);
    }
    session->spoke = true;
}

static void session_bad_request(struct broker *broker, struct session *session,
                                const struct reply *refusal)
{
    struct reply *reply = broker_reply(broker, session, &refusal->id, refusal->op);

    broker->stats.bad_requests++;
    session->spoke = true;
    *reply = *refusal;

    // By that id its client still awaits the answer to another request.
    if (session_find_call(session, &refusal->id))
        reply->id = (struct request_id){.kind = REQUEST_ID_NONE};
}

// True when this is not the run of the backend that was seen before.
static bool backend_restarted(const struct broker *broker, const struct backend_facts *facts)
{
    return facts->run_id && *broker->backend_run_id &&
           strcmp(facts->run_id, broker->backend_run_id) != 0;
}

// Keys expire by the server's clock: when it jumped forwards, all of them expire sooner than their
// holders were told.
static void server_clock_stepped(struct broker *broker, int64_t step_ms)
{
    struct lock *lock;

    if (step_ms == 0)
        return;
    broker->stats.clock_steps++;
    broker_fact(broker, FACT_WARNING, "redis_clock_stepped", NULL)->ms = step_ms;
    for (lock = lock_tree_first(&broker->locks); lock && step_ms > 0; lock = lock_tree_next(lock)) {
        if (lock->state == LOCK_HELD)
            hold_clock_stepped(broker, lock, step_ms);
        else if (lock->state == LOCK_VACANT)
            release_begin(broker, lock);
    }
}

static void server_clock_look(struct broker *broker, int64_t asked_ms, int64_t server_ms)
{
    if (server_ms == LB_NONE || asked_ms == LB_NONE)
        return;
    server_clock_stepped(
        broker, server_clock_observe(&broker->server_clock, asked_ms, broker->now_ms, server_ms));
}

// A new link may serve what waited for it: nothing pauses any longer.
static void backend_up(struct broker *broker, const struct backend_facts *facts)
{
    bool restarted = backend_restarted(broker, facts);
    struct lock *lock;

    server_clock_look(broker, facts->asked_ms, facts->server_ms);
    broker->up = true;
    if (facts->run_id)
        copy_text(&broker->backend_run_id, facts->run_id);
    broker->may_evict = facts->may_evict;
    copy_text(&broker->backend_role, facts->role);
    copy_text(&broker->backend_version, facts->version);
    copy_text(&broker->backend_policy, facts->policy);
    for (lock = lock_tree_first(&broker->locks); lock; lock = lock_tree_next(lock)) {
        lock->paused = false;
        if (restarted && lock->state == LOCK_HELD)
            hold_doubt(broker, lock, "restarted");
        else if (restarted && lock->state == LOCK_VACANT)
            release_begin(broker, lock);
    }
    broker_mark_all_dirty(broker);
}

static void backend_down(struct broker *broker)
{
    broker->up = false;
    broker->down_up_to = broker->next_id - 1;
    broker_mark_all_dirty(broker);
}

// An acquire or renewal that was executed leaves an epoch marker behind.
static void epoch_look(struct broker *broker, enum backend_op_kind kind,
                       const struct backend_outcome *outcome)
{
    bool was_executed = outcome->server_ms != LB_NONE && outcome->result != RESULT_LATE;

    if (broker->waits_after_loss && was_executed &&
        (kind == BACKEND_ACQUIRE || kind == BACKEND_RENEW))
        broker->saw_epoch = true;
}

static void backend_outcome(struct broker *broker, const struct backend_outcome *outcome)
{
    struct flight *flight = flight_tree_find(&broker->flights, outcome->op_id);

    if (!flight) {
        broker->stats.late_outcomes++;
        return;
    }
    broker->stats.unknown_outcomes += outcome->result == RESULT_UNKNOWN;
    server_clock_look(broker, outcome->sent_ms, outcome->server_ms);
    epoch_look(broker, flight->kind, outcome);
    flight_tree_remove(&broker->flights, flight);
    switch (flight->kind) {
    case BACKEND_ACQUIRE:
        acquire_outcome(broker, flight->subject, outcome);
        broker_mark_dirty(broker, flight->subject);
        break;
    case BACKEND_RENEW:
        hold_outcome(broker, flight->subject, outcome);
        broker_mark_dirty(broker, flight->subject);
        break;
    case BACKEND_RELEASE:
        release_outcome(broker, flight->subject, outcome);
        broker_mark_dirty(broker, flight->subject);
        break;
    case BACKEND_QUERY:
    case BACKEND_BREAK:
    default:
        inquiry_outcome(broker, flight->subject, outcome);
        break;
    }
}

static void broker_drain(struct broker *broker)
{
    broker->draining = true;
    broker_mark_all_dirty(broker);
}

static void handle_session_event(struct broker *broker, const struct event *event)
{
    struct session *session = session_tree_find(&broker->sessions, event->session);

    if (!session) // ended already, or never had memory
        return;
    if (event->kind == EVENT_REQUEST)
        session_request(broker, session, event->request);
    else if (event->kind == EVENT_BAD_REQUEST)
        session_bad_request(broker, session, event->refusal);
    else if (event->kind == EVENT_GRANT_STALE)
        hold_take_back(broker, session, event->grant_id);
    else
        session_closed(broker, session, event->closed_by_broker);
}

static void handle_event(struct broker *broker, const struct event *event)
{
    switch (event->kind) {
    case EVENT_SESSION_OPENED:
        session_opened(broker, event);
        break;
    case EVENT_REQUEST:
    case EVENT_BAD_REQUEST:
    case EVENT_SESSION_CLOSED:
    case EVENT_GRANT_STALE:
        handle_session_event(broker, event);
        break;
    case EVENT_BACKEND_UP:
        backend_up(broker, &event->facts);
        break;
    case EVENT_BACKEND_DOWN:
        backend_down(broker);
        break;
    case EVENT_BACKEND_OUTCOME:
        backend_outcome(broker, &event->outcome);
        break;
    case EVENT_DRAIN:
        broker_drain(broker);
        break;
    case EVENT_CONFIGURE:
        broker_configure(broker, event->config);
        break;
    case EVENT_CHANNEL_UP:
        contention_channel_up(broker);
        break;
    case EVENT_CHANNEL_DOWN:
        contention_channel_down(broker);
        break;
    case EVENT_TURN:
    case EVENT_CONTENDED:
    case EVENT_OUTSIDER:
        contention_message(broker, event);
        break;
    case EVENT_TIME:
    default:
        break;
    }
}

bool broker_step(struct broker *broker, const struct event *event, struct effects *effects)
{
    graveyard_clear(&broker->graves);
    effects->count = 0;
    broker->effects = effects;
    broker->now_ms = event->now_ms;

    // Grants that could not be told must go before any sweep, which would tell of their loss. One
    // step may have made several: what follows from it waits for the next step.
    if (event->kind == EVENT_GRANT_STALE) {
        handle_event(broker, event);
        return true;
    }
    if (!broker_sweep(broker)) // else there is room for what the event brings
        return false;
    handle_event(broker, event);
    (void)broker_sweep(broker);
    return true;
}

static bool has_work_left(const struct broker *broker)
{
    return !TAILQ_EMPTY(&broker->dirty) || !TAILQ_EMPTY(&broker->closing) ||
           !TAILQ_EMPTY(&broker->finished) || (broker->batching && !renewals_are_paced(broker));
}

int64_t broker_next_deadline(const struct broker *broker)
{
    const struct alarm *first[] = {
        alarm_queue_first(&broker->claim_alarms),
        alarm_queue_first(&broker->lock_alarms),
        broker->up && !broker->batching ? alarm_queue_first(&broker->renewals) : NULL,
    };
    int64_t due_ms = broker->batching ? broker->now_ms + 1 : INT64_MAX;

    if (has_work_left(broker))
        return 0;
    for (size_t i = 0; i < LB_ARRAY_LENGTH(first); i++) {
        if (first[i] && first[i]->due_ms < due_ms)
            due_ms = first[i]->due_ms;
    }
    return due_ms;
}

bool broker_is_drained(const struct broker *broker)
{
    return broker->draining && !has_work_left(broker) && broker->owed_count == 0;
}

size_t broker_kept_count(const struct broker *broker)
{
    return broker->owed_count;
}

bool broker_session_is_busy(const struct broker *broker, uint64_t session_id)
{
    struct session *session =
        session_tree_find((struct session_tree *)(uintptr_t)&broker->sessions, session_id);

    return session && session_is_busy(session);
}
