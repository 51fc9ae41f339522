// The connection on which the broker's operations run: the keeper keeps it up, the exchange knows
// what they mean, and this file ends them in time and tells the broker. Every callback ends here in
// posted events, never in a call into the broker.
#include "daemon/redis/uplink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/redis/exchange.h"

// How long Redis still has to answer when it was this process that did not run.
#define UPLINK_GRACE_MAX_MS 100

struct uplink {
    struct keeper keeper;
    struct exchange exchange;
    void (*post)(void *context, const struct event *event);
    void *context;
    char *prefix;

    uv_timer_t command_timer; // the first command that must be answered
    int64_t grace_for_ms;     // commands due by then have had their grace, or have it now
    int handles_open;         // the timer, and what the keeper has

    char evicting_policy[HANDSHAKE_WORD_BYTES_MAX + 1]; // warned of; "": none
};

static void uplink_free(struct uplink *uplink)
{
    keeper_deinit(&uplink->keeper);
    free(uplink->prefix);
    explicit_bzero(uplink, sizeof(*uplink)); // the maker of tokens holds the secret
    free(uplink);
}

static void on_closed(void *context)
{
    struct uplink *uplink = context;

    if (--uplink->handles_open == 0)
        uplink_free(uplink);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_closed(handle->data);
}

static void event_post(struct uplink *uplink, struct event *event)
{
    event->now_ms = clock_now_ms();
    uplink->post(uplink->context, event);
}

static void on_command_time(uv_timer_t *timer);

// Arms the timer for a time on CLOCK_BOOTTIME. libuv's clock is another one and may be behind;
// whether the time has come is judged when the timer fires.
static void command_timer_start(struct uplink *uplink, int64_t when_ms)
{
    int64_t delay_ms = when_ms - clock_now_ms();

    uv_update_time(uplink->keeper.loop);
    (void)uv_timer_start(&uplink->command_timer, on_command_time,
                         delay_ms > 0 ? (uint64_t)delay_ms : 1, 0);
}

// A command's time is up. libuv runs timers before it reads: if this process was stopped or busy,
// the answer may have been here all along, and a command may have been written a moment ago. So the
// link is only given up when the answer is still missing after the next turn of the loop, and after
// as much time as we ourselves were late.
static void command_time_up(struct uplink *uplink, int64_t deadline_ms, int64_t now_ms)
{
    int64_t late_ms = now_ms - deadline_ms;
    int64_t grace_ms = late_ms < UPLINK_GRACE_MAX_MS ? late_ms : UPLINK_GRACE_MAX_MS;

    if (deadline_ms <= uplink->grace_for_ms) {
        uplink->exchange.figures.command_timeouts++;
        keeper_fail(&uplink->keeper, "a command was not answered in time");
        return;
    }
    uplink->grace_for_ms = now_ms;
    command_timer_start(uplink, now_ms + grace_ms);
}

static void on_command_time(uv_timer_t *timer)
{
    struct uplink *uplink = timer->data;
    int64_t deadline_ms = exchange_deadline(&uplink->exchange);
    int64_t now_ms = clock_now_ms();

    if (deadline_ms <= now_ms)
        command_time_up(uplink, deadline_ms, now_ms);
    else if (deadline_ms != INT64_MAX)
        command_timer_start(uplink, deadline_ms);
}

static void eviction_warn(struct uplink *uplink, const struct backend_facts *facts)
{
    struct log_line line;
    const char *policy = facts->may_evict ? facts->policy : "";

    if (strcmp(uplink->evicting_policy, policy) == 0)
        return;
    (void)snprintf(uplink->evicting_policy, sizeof(uplink->evicting_policy), "%s", policy);
    if (!facts->may_evict)
        return;
    log_begin(&line, LOG_LEVEL_WARNING, "redis_may_evict_locks");
    log_text(&line, "address", uplink->keeper.label);
    log_text(&line, "policy", facts->policy);
    log_text(&line, "message",
             "Redis may delete held locks when memory is short: set maxmemory-policy noeviction");
    log_end(&line);
}

static void up_log(const struct uplink *uplink, const struct backend_facts *facts)
{
    struct log_line line;

    log_begin(&line, LOG_LEVEL_NOTICE, "redis_up");
    log_text(&line, "address", uplink->keeper.label);
    log_text(&line, "version", facts->version);
    log_text(&line, "role", facts->role);
    log_text(&line, "policy", facts->policy);
    log_text(&line, "run_id", facts->run_id);
    log_end(&line);
}

static void on_up(void *context)
{
    struct uplink *uplink = context;
    struct event event = {.kind = EVENT_BACKEND_UP};

    uplink->exchange.figures.connects++;
    exchange_start(&uplink->exchange, uplink->keeper.wire, &uplink->keeper.handshake.scripts);
    handshake_facts(&uplink->keeper.handshake, &event.facts);
    up_log(uplink, &event.facts);
    eviction_warn(uplink, &event.facts);
    event_post(uplink, &event);
}

static void on_reply(void *context, const struct resp *reply)
{
    struct uplink *uplink = context;
    const char *reason = NULL;

    if (!exchange_take(&uplink->exchange, reply, &reason))
        keeper_fail(&uplink->keeper, reason);
}

static void on_down(void *context, bool was_up)
{
    struct uplink *uplink = context;
    struct event event = {.kind = EVENT_BACKEND_DOWN};

    if (!was_up)
        uplink->exchange.figures.connect_failures++;
    (void)uv_timer_stop(&uplink->command_timer);
    exchange_fail(&uplink->exchange);
    event_post(uplink, &event);
}

static void uplink_init(struct uplink *uplink, uv_loop_t *loop,
                        const struct uplink_options *options)
{
    uplink->post = uplink->exchange.post = options->post;
    uplink->context = uplink->exchange.context = options->context;
    uplink->exchange.prefix = uplink->prefix;
    exchange_init(&uplink->exchange);
    (void)uv_timer_init(loop, &uplink->command_timer); // does not fail
    uplink->command_timer.data = uplink;
    uplink->handles_open = 2;
}

static int keeper_make(struct uplink *uplink, uv_loop_t *loop, const struct uplink_options *options)
{
    struct keeper_options keeper_options = {
        .address = options->address,
        .host = options->host,
        .connect_timeout_ms = options->connect_timeout_ms,
        .seed = options->seed,
        .failed_event = "redis_connect_failed",
        .down_event = "redis_down",
    };
    struct keeper_handlers handlers = {on_up, on_reply, on_down, on_closed, uplink};

    return keeper_init(&uplink->keeper, loop, &keeper_options, &handlers);
}

int uplink_new(uv_loop_t *loop, const struct uplink_options *options, struct uplink **ret_uplink)
{
    struct uplink *uplink = calloc(1, sizeof(*uplink));
    int rc;

    if (!uplink)
        return -ENOMEM;
    rc = token_maker_init(&uplink->exchange.maker, options->host, options->instance);
    if (rc == 0 && !(uplink->prefix = strdup(options->prefix)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = keeper_make(uplink, loop, options);
    if (rc < 0) {
        uplink_free(uplink);
        return rc;
    }
    uplink_init(uplink, loop, options);
    *ret_uplink = uplink;
    return 0;
}

void uplink_open(struct uplink *uplink)
{
    keeper_open(&uplink->keeper);
}

void uplink_set_urgent(struct uplink *uplink, bool urgent)
{
    keeper_set_urgent(&uplink->keeper, urgent);
}

void uplink_submit(struct uplink *uplink, const struct backend_op *op)
{
    if (uplink->keeper.state != KEEPER_CLOSED)
        exchange_submit(&uplink->exchange, op);
}

void uplink_flush(struct uplink *uplink)
{
    int64_t before_ms = uplink->exchange.soonest_ms;

    if (uplink->keeper.state != KEEPER_UP)
        return;
    exchange_send(&uplink->exchange);
    wire_flush(uplink->keeper.wire);
    if (uplink->exchange.soonest_ms < before_ms)
        command_timer_start(uplink, uplink->exchange.soonest_ms);
}

void uplink_close(struct uplink *uplink)
{
    if (uplink->keeper.state == KEEPER_CLOSED)
        return;
    exchange_deinit(&uplink->exchange);
    keeper_close(&uplink->keeper);
    uv_close((uv_handle_t *)&uplink->command_timer, on_timer_closed);
}

void uplink_get_figures(const struct uplink *uplink, struct uplink_figures *ret_figures)
{
    *ret_figures = uplink->exchange.figures;
}
