// Stepping. The clock is read right before each step, so every affirmation that leaves a step is
// younger than the request it answers, and whatever ran out during a pause of this process is swept
// before the first event after it. Before a grant is written the clock is read once more.
#include "daemon/io/pump.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/io/conn_turn.h"
#include "daemon/io/report.h"

// How soon to go on when memory ran out.
#define RETRY_MS 10

// Events that are neither outcomes nor ends of connections: the backend's ups and downs, signals.
#define OTHERS_MAX 64

static bool grant_is_stale(struct pump *pump, struct conn *conn, struct effect *effect)
{
    int64_t now_ms = clock_now_ms();

    if (now_ms < effect->tell_before_ms) {
        effect->reply.valid_ms = effect->reply.deadline_ms - now_ms;
        return false;
    }
    if (pump->stale_count == PUMP_STALE_MAX) {
        conn_cut(conn, "grants_stale"); // its keys are kept until the deadlines, told or not
        return true;
    }
    pump->stale[pump->stale_count++] = (struct event){
        .kind = EVENT_GRANT_STALE,
        .session = effect->session,
        .grant_id = effect->grant_id,
    };
    return true;
}

static void carry_reply(struct pump *pump, struct effect *effect)
{
    struct conn *conn = conn_table_find(pump->conns, effect->session);

    if (!conn) {
        pump->late_effects++;
        return;
    }
    if (effect->grant_id && grant_is_stale(pump, conn, effect))
        return;
    if (effect->reply.stats)
        report_stats(pump, conn, &effect->reply);
    else
        conn_reply(conn, &effect->reply);
}

static void carry_notice(struct pump *pump, const struct effect *effect)
{
    struct conn *conn = conn_table_find(pump->conns, effect->session);

    if (conn)
        conn_notify(conn, &effect->notice);
    else
        pump->late_effects++;
}

static void carry(struct pump *pump, struct effect *effect)
{
    struct conn *conn;

    switch (effect->kind) {
    case EFFECT_REPLY:
        carry_reply(pump, effect);
        break;
    case EFFECT_NOTICE:
        carry_notice(pump, effect);
        break;
    case EFFECT_BACKEND:
        pump->outcomes_due++;
        if (pump->uplink)
            uplink_submit(pump->uplink, &effect->op);
        else
            memory_backend_submit(pump->memory, &effect->op);
        break;
    case EFFECT_FACT:
        report_fact(&effect->fact, conn_table_find(pump->conns, effect->session));
        break;
    case EFFECT_CLOSE:
    default:
        conn = conn_table_find(pump->conns, effect->session);
        if (conn)
            conn_cut(conn, "out_of_memory");
        break;
    }
}

static bool pump_step_once(struct pump *pump, struct event *event)
{
    event->now_ms = clock_now_ms();

    bool handled = broker_step(pump->broker, event, &pump->effects);
#ifdef LB_CHECK_STEPS
    broker_check(pump->broker);
#endif

    for (size_t i = 0; i < pump->effects.count; i++)
        carry(pump, &pump->effects.items[i]);
    return handled;
}

// Room for all that one step may bring in beside what is on its way already.
static bool pump_has_room(struct pump *pump)
{
    size_t ends = (size_t)pump->conns->count;

    return inbox_reserve(&pump->inbox, pump->outcomes_due + ends + EFFECTS_MAX + OTHERS_MAX) == 0;
}

static void pump_step_stale(struct pump *pump)
{
    while (pump->stale_count && pump_has_room(pump)) {
        struct event stale = pump->stale[--pump->stale_count];

        (void)pump_step_once(pump, &stale);
    }
}

// False when there is no memory: the event was not, or not wholly, handled.
static bool pump_step(struct pump *pump, struct event *event)
{
    bool handled = false;

    pump_step_stale(pump);
    while (!handled) {
        if (pump->stale_count || !pump_has_room(pump))
            return false;
        handled = pump_step_once(pump, event);
        pump_step_stale(pump);
    }
    return true;
}

// Steps what is queued. False when there is no memory to go on.
static bool pump_step_queued(struct pump *pump)
{
    struct inbox_entry entry;

    while (inbox_pop(&pump->inbox, &entry)) {
        if (pump_step(pump, &entry.event))
            continue;
        inbox_return(&pump->inbox, &entry);
        return false;
    }
    return true;
}

// Nearly every turn moves the next deadline out. The timer is left where it is then: to wake once
// too early costs less than to set it each time.
static void pump_arm(struct pump *pump, int64_t deadline_ms)
{
    struct itimerspec spec = {0};

    pump->due_ms = deadline_ms;
    if (pump->armed_ms != INT64_MIN && pump->armed_ms <= deadline_ms)
        return;
    pump->armed_ms = deadline_ms;
    if (deadline_ms != INT64_MAX) {
        spec.it_value.tv_sec = deadline_ms / 1000;
        spec.it_value.tv_nsec = deadline_ms % 1000 * 1000000;
    }

    // A timer that cannot be set would let leases run out unseen.
    int r = timerfd_settime(pump->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);

    lb_assert(r == 0);
}

static void pump_note_lateness(struct pump *pump)
{
    if (pump->due_ms != INT64_MAX)
        lateness_note(&pump->lateness, pump->due_ms, clock_now_ms());
}

// Without memory all stands still until there is some: leases run out rather than be forgotten.
static void pump_drain(struct pump *pump)
{
    struct event time = {.kind = EVENT_TIME};

    while (pump_step_queued(pump)) {
        int64_t deadline_ms = broker_next_deadline(pump->broker);

        if (deadline_ms > clock_now_ms() && pump->stale_count == 0) {
            pump_arm(pump, deadline_ms);
            return;
        }
        if (!pump_step(pump, &time))
            break;
    }
    pump_arm(pump, clock_now_ms() + RETRY_MS);
}

void pump_run(struct pump *pump)
{
    lb_assert(!pump->running);
    pump->running = true;
    pump_note_lateness(pump);
    pump_drain(pump);
    pump->running = false;
}

bool pump_submit(struct pump *pump, struct event *event)
{
    bool handled;

    lb_assert(!pump->running);
    pump->running = true;
    pump_note_lateness(pump);
    handled = pump_step_queued(pump) && pump_step(pump, event);
    pump_drain(pump);
    pump->running = false;
    return handled;
}

// Attempts to connect that fail while nothing is stepped must not fill the queue.
static bool is_repeated(const struct pump *pump, const struct event *event)
{
    const struct event *last = inbox_last(&pump->inbox);

    return event->kind == EVENT_BACKEND_DOWN && last && last->kind == EVENT_BACKEND_DOWN;
}

void pump_post(void *context, const struct event *event)
{
    struct pump *pump = context;

    if (is_repeated(pump, event))
        return;
    if (event->kind == EVENT_BACKEND_OUTCOME)
        pump->outcomes_due--;
    inbox_push(&pump->inbox, event);
}

static void on_timer(uv_poll_t *timer, int status, int events)
{
    struct pump *pump = timer->data;
    uint64_t expirations;

    (void)status;
    (void)events;
    (void)!read(pump->timer_fd, &expirations, sizeof(expirations));
    pump->armed_ms = INT64_MIN;
    pump_run(pump);
}

// What the turn brought is written once, not a line at a time.
static void pump_turn(struct pump *pump)
{
    pump_run(pump);
    if (pump->uplink)
        uplink_flush(pump->uplink);
    conn_table_flush(pump->conns);
    conn_turn_begin(pump->conns);
    pump->after_turn(pump->context);
}

static void on_check(uv_check_t *check)
{
    pump_turn(check->data);
}

static void on_prepare(uv_prepare_t *prepare)
{
    pump_turn(prepare->data);
}

static int pump_init_handles(struct pump *pump, uv_loop_t *loop)
{
    int r = uv_poll_init(loop, &pump->timer, pump->timer_fd);

    if (r < 0)
        return r;
    (void)uv_check_init(loop, &pump->check);
    (void)uv_prepare_init(loop, &pump->prepare);
    pump->timer.data = pump;
    pump->check.data = pump;
    pump->prepare.data = pump;
    (void)uv_check_start(&pump->check, on_check);
    (void)uv_prepare_start(&pump->prepare, on_prepare);
    return uv_poll_start(&pump->timer, UV_READABLE, on_timer);
}

int pump_init(struct pump *pump, uv_loop_t *loop, struct broker *broker)
{
    memset(pump, 0, sizeof(*pump));
    pump->broker = broker;
    pump->due_ms = pump->armed_ms = INT64_MAX;
    pump->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (pump->timer_fd < 0)
        return -errno;

    int r = inbox_init(&pump->inbox);

    if (r == 0)
        r = pump_init_handles(pump, loop);
    if (r < 0)
        pump_deinit(pump);
    return r;
}

void pump_close(struct pump *pump)
{
    uv_close((uv_handle_t *)&pump->timer, NULL);
    uv_close((uv_handle_t *)&pump->check, NULL);
    uv_close((uv_handle_t *)&pump->prepare, NULL);
}

void pump_deinit(struct pump *pump)
{
    (void)close(pump->timer_fd);
    inbox_deinit(&pump->inbox);
}
