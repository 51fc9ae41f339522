// Brings the link up and keeps it up: resolve, connect, greet, serve, and after any failure pause
// and begin again. What the operations mean is the exchange's; this file only decides when there is
// a link. Every callback of libuv ends here in a changed state and posted events, never in a call
// into the broker.
#include "daemon/redis/uplink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/rng.h"
#include "daemon/redis/backoff.h"
#include "daemon/redis/command.h"
#include "daemon/redis/exchange.h"
#include "daemon/redis/gate.h"
#include "daemon/redis/handshake.h"
#include "daemon/redis/resolve.h"
#include "daemon/redis/wire.h"

// A link that was up for so long was a good one: the pauses begin anew after it.
#define UPLINK_GOOD_MS 1000

// How long Redis still has to answer when it was this process that did not run.
#define UPLINK_GRACE_MAX_MS 100

enum uplink_state {
    UPLINK_IDLE,   // made, not opened
    UPLINK_PAUSED, // between two attempts
    UPLINK_TRYING, // resolving, connecting or greeting
    UPLINK_UP,
    UPLINK_CLOSED,
};

struct uplink {
    uv_loop_t *loop;
    enum uplink_state state;
    bool is_urgent;
    struct uplink_options options;
    char *texts[6]; // what the pointers in `options` point to

    uv_timer_t attempt_timer; // the pause, or the time limit of an attempt
    uv_timer_t command_timer; // the first command that must be answered
    int64_t grace_for_ms;     // commands due by then have had their grace, or have it now
    int handles_open;

    struct resolve *resolve;
    struct resolve_result result;
    size_t address_next;
    struct wire *wire;
    struct handshake handshake;
    struct exchange exchange;

    struct rng rng;
    struct backoff backoff;
    int64_t up_since_ms;
    struct gate failures;
    char evicting_policy[HANDSHAKE_WORD_BYTES_MAX + 1]; // warned of; "": none
    char label[RESOLVE_HOST_BYTES_MAX + 16];            // of the address, for the log
    bool is_connected;                                  // the wire is; its greeting may not be over
};

static void attempt_start(struct uplink *uplink);
static void address_try(struct uplink *uplink);

static void uplink_free(struct uplink *uplink)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(uplink->texts); i++) {
        if (uplink->texts[i])
            explicit_bzero(uplink->texts[i], strlen(uplink->texts[i]));
        free(uplink->texts[i]);
    }
    explicit_bzero(uplink, sizeof(*uplink));
    free(uplink);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct uplink *uplink = handle->data;

    if (--uplink->handles_open == 0)
        uplink_free(uplink);
}

static void event_post(struct uplink *uplink, struct event *event)
{
    event->now_ms = clock_now_ms();
    uplink->options.post(uplink->options.context, event);
}

static void down_post(struct uplink *uplink)
{
    struct event event = {.kind = EVENT_BACKEND_DOWN};

    event_post(uplink, &event);
}

// The address as it stands in a URL: 127.0.0.1:6379, [::1]:6379, or a path.
static void label_make(struct uplink *uplink)
{
    const struct uplink_address *address = &uplink->options.address;
    bool is_ipv6 = address->host && strchr(address->host, ':');

    if (address->path)
        (void)snprintf(uplink->label, sizeof(uplink->label), "%s", address->path);
    else
        (void)snprintf(uplink->label, sizeof(uplink->label), "%s%s%s:%d", is_ipv6 ? "[" : "",
                       address->host, is_ipv6 ? "]" : "", address->port);
}

static void on_pause_over(uv_timer_t *timer)
{
    attempt_start(timer->data);
}

static void pause_start(struct uplink *uplink)
{
    int64_t pause_ms = backoff_next(&uplink->backoff, uplink->is_urgent, &uplink->rng);

    uplink->state = UPLINK_PAUSED;
    uv_update_time(uplink->loop);
    (void)uv_timer_start(&uplink->attempt_timer, on_pause_over, (uint64_t)pause_ms, 0);
}

static void wire_drop(struct uplink *uplink)
{
    if (uplink->wire)
        wire_close(uplink->wire);
    uplink->wire = NULL;
    uplink->is_connected = false;
}

static void failure_log(struct uplink *uplink, const char *reason, const char *hint)
{
    struct log_line line;
    int64_t held_back;

    if (!gate_pass(&uplink->failures, reason, clock_now_ms(), &held_back))
        return;
    log_begin(&line, LOG_LEVEL_WARNING, "redis_connect_failed");
    log_text(&line, "address", uplink->label);
    log_text(&line, "reason", reason);
    log_text(&line, "hint", hint);
    log_number(&line, "not_logged", held_back > 0 ? held_back : LB_NONE);
    log_end(&line);
}

// The attempt is over: pause. `reason` may lie in the handshake; `hint` says what to do, or is
// NULL.
static void attempt_fail(struct uplink *uplink, const char *reason, const char *hint)
{
    uplink->exchange.figures.connect_failures++;
    failure_log(uplink, reason, hint);
    wire_drop(uplink);
    pause_start(uplink);
    down_post(uplink);
}

// This address is no good: go on with the next one, if there is any.
static void address_fail(struct uplink *uplink, const char *reason, const char *hint)
{
    if (uplink->options.address.path || uplink->address_next >= uplink->result.count) {
        attempt_fail(uplink, reason, hint);
        return;
    }
    wire_drop(uplink);
    address_try(uplink);
}

// The link was up and is lost.
static void link_fail(struct uplink *uplink, const char *reason)
{
    int64_t up_ms = clock_now_ms() - uplink->up_since_ms;
    struct log_line line;

    log_begin(&line, LOG_LEVEL_WARNING, "redis_down");
    log_text(&line, "address", uplink->label);
    log_text(&line, "reason", reason);
    log_number(&line, "up_ms", up_ms);
    log_end(&line);
    if (up_ms >= UPLINK_GOOD_MS)
        backoff_reset(&uplink->backoff);
    (void)uv_timer_stop(&uplink->command_timer);
    exchange_fail(&uplink->exchange);
    wire_drop(uplink);
    pause_start(uplink);
    down_post(uplink);
}

static void on_attempt_timeout(uv_timer_t *timer)
{
    struct uplink *uplink = timer->data;

    if (uplink->resolve) {
        resolve_abandon(uplink->resolve);
        uplink->resolve = NULL;
        attempt_fail(uplink, "the name was not resolved in time", "see whether DNS answers");
    } else if (uplink->is_connected) {
        address_fail(uplink, "connected, but no greeting in time",
                     "is it Redis that listens there, and is it stopped or busy?");
    } else {
        address_fail(uplink, "no connection in time",
                     "is the address right, and does a firewall drop the packets?");
    }
}

static void attempt_timer_start(struct uplink *uplink)
{
    uint64_t timeout_ms = (uint64_t)uplink->options.connect_timeout_ms;

    uv_update_time(uplink->loop);
    (void)uv_timer_start(&uplink->attempt_timer, on_attempt_timeout, timeout_ms, 0);
}

static void on_command_time(uv_timer_t *timer);

// Arms the timer for a time on CLOCK_BOOTTIME. libuv's clock is another one and may be behind;
// whether the time has come is judged when the timer fires.
static void command_timer_start(struct uplink *uplink, int64_t when_ms)
{
    int64_t delay_ms = when_ms - clock_now_ms();

    uv_update_time(uplink->loop);
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
        link_fail(uplink, "a command was not answered in time");
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
    log_text(&line, "address", uplink->label);
    log_text(&line, "policy", facts->policy);
    log_text(&line, "message",
             "Redis may delete held locks when memory is short: set maxmemory-policy noeviction");
    log_end(&line);
}

static void up_log(const struct uplink *uplink, const struct backend_facts *facts)
{
    struct log_line line;

    log_begin(&line, LOG_LEVEL_NOTICE, "redis_up");
    log_text(&line, "address", uplink->label);
    log_text(&line, "version", facts->version);
    log_text(&line, "role", facts->role);
    log_text(&line, "policy", facts->policy);
    log_text(&line, "run_id", uplink->handshake.run_id[0] ? uplink->handshake.run_id : NULL);
    log_end(&line);
}

static void link_serve(struct uplink *uplink)
{
    struct event event = {.kind = EVENT_BACKEND_UP};

    (void)uv_timer_stop(&uplink->attempt_timer);
    uplink->state = UPLINK_UP;
    uplink->up_since_ms = clock_now_ms();
    uplink->exchange.figures.connects++;
    gate_reset(&uplink->failures);
    exchange_start(&uplink->exchange, uplink->wire, &uplink->handshake.scripts);
    handshake_facts(&uplink->handshake, &event.facts);
    up_log(uplink, &event.facts);
    eviction_warn(uplink, &event.facts);
    event_post(uplink, &event);
}

static void on_wire_open(void *context)
{
    struct uplink *uplink = context;
    struct handshake *handshake = &uplink->handshake;
    const struct uplink_address *address = &uplink->options.address;
    struct handshake_options options = {address->user, address->password, address->database,
                                        uplink->options.host, clock_now_ms()};
    int rc = 0;

    uplink->is_connected = true;
    handshake_init(handshake, &options);
    for (size_t i = 0; i < handshake->steps_count && rc == 0; i++) {
        char *bytes = NULL;
        size_t length = 0;
        uint64_t ignored;

        rc = handshake_format(handshake, i, &bytes, &length);
        if (rc == 0)
            rc = wire_append(uplink->wire, bytes, length, &ignored);
        command_free(bytes, length);
    }
    if (rc < 0)
        address_fail(uplink, strerror(-rc), NULL);
    else
        wire_flush(uplink->wire);
}

static void on_wire_reply(void *context, const struct resp *reply)
{
    struct uplink *uplink = context;
    const char *reason = NULL;
    int rc;

    if (uplink->state == UPLINK_UP) {
        if (!exchange_take(&uplink->exchange, reply, &reason))
            link_fail(uplink, reason);
        return;
    }
    rc = handshake_take(&uplink->handshake, reply);
    if (rc == HANDSHAKE_E_DONE)
        link_serve(uplink);
    else if (rc == HANDSHAKE_E_REFUSED)
        address_fail(uplink, uplink->handshake.problem, uplink->handshake.hint);
}

static void on_wire_end(void *context, const char *reason)
{
    struct uplink *uplink = context;

    if (uplink->state == UPLINK_UP)
        link_fail(uplink, reason);
    else
        address_fail(uplink, reason, NULL);
}

static struct wire_handlers wire_handlers_make(struct uplink *uplink)
{
    return (struct wire_handlers){on_wire_open, on_wire_reply, on_wire_end, uplink};
}

// Connects to the next address that does not fail at once.
static void address_try(struct uplink *uplink)
{
    struct wire_handlers handlers = wire_handlers_make(uplink);
    int rc = -EADDRNOTAVAIL;

    while (uplink->address_next < uplink->result.count) {
        struct sockaddr_storage *address = &uplink->result.addresses[uplink->address_next++];

        rc = wire_connect(uplink->loop, (const struct sockaddr *)address, &handlers, &uplink->wire);
        if (rc == 0) {
            attempt_timer_start(uplink);
            return;
        }
    }
    attempt_fail(uplink, strerror(-rc), NULL);
}

static void on_resolved(void *context, int status, const struct resolve_result *result)
{
    struct uplink *uplink = context;

    uplink->resolve = NULL;
    if (status < 0) {
        attempt_fail(uplink, uv_strerror(status), NULL);
        return;
    }
    uplink->result = *result;
    address_try(uplink);
}

static void path_try(struct uplink *uplink)
{
    struct wire_handlers handlers = wire_handlers_make(uplink);
    int rc =
        wire_connect_path(uplink->loop, uplink->options.address.path, &handlers, &uplink->wire);

    if (rc < 0)
        attempt_fail(uplink, strerror(-rc), NULL);
}

static void host_try(struct uplink *uplink)
{
    const struct uplink_address *address = &uplink->options.address;
    int rc;

    if (resolve_numeric(address->host, address->port, &uplink->result)) {
        address_try(uplink);
        return;
    }
    rc = resolve_start(uplink->loop, address->host, address->port, on_resolved, uplink,
                       &uplink->resolve);
    if (rc < 0)
        attempt_fail(uplink, strerror(-rc), NULL);
}

static void attempt_start(struct uplink *uplink)
{
    uplink->state = UPLINK_TRYING;
    uplink->address_next = 0;
    uplink->result.count = 0;
    attempt_timer_start(uplink);
    if (uplink->options.address.path)
        path_try(uplink);
    else
        host_try(uplink);
}

static bool address_is_valid(const struct uplink_address *address)
{
    if (!address->host == !address->path)
        return false;
    if (address->database < 0)
        return false;
    if (address->path)
        return address->path[0] != '\0' && strlen(address->path) <= WIRE_PATH_BYTES_MAX;
    return address->port >= 1 && address->port <= 65535 && resolve_host_is_valid(address->host);
}

// Points *text to a copy that `uplink` owns. NULL stays NULL.
static bool text_own(struct uplink *uplink, size_t slot, const char **text)
{
    if (!*text)
        return true;
    uplink->texts[slot] = strdup(*text);
    *text = uplink->texts[slot];
    return *text != NULL;
}

static bool options_own(struct uplink *uplink)
{
    struct uplink_options *options = &uplink->options;
    struct uplink_address *address = &options->address;

    options->instance = NULL;
    return text_own(uplink, 0, &address->host) && text_own(uplink, 1, &address->path) &&
           text_own(uplink, 2, &address->user) && text_own(uplink, 3, &address->password) &&
           text_own(uplink, 4, &options->prefix) && text_own(uplink, 5, &options->host);
}

static void uplink_init(struct uplink *uplink, uv_loop_t *loop)
{
    uplink->loop = loop;
    uplink->state = UPLINK_IDLE;
    rng_init(&uplink->rng, uplink->options.seed);
    backoff_reset(&uplink->backoff);
    exchange_init(&uplink->exchange);
    uplink->exchange.prefix = uplink->options.prefix;
    uplink->exchange.post = uplink->options.post;
    uplink->exchange.context = uplink->options.context;
    // These do not fail: they only fill the structs in.
    (void)uv_timer_init(loop, &uplink->attempt_timer);
    (void)uv_timer_init(loop, &uplink->command_timer);
    uplink->attempt_timer.data = uplink;
    uplink->command_timer.data = uplink;
    uplink->handles_open = 2;
}

int uplink_new(uv_loop_t *loop, const struct uplink_options *options, struct uplink **ret_uplink)
{
    struct uplink *uplink;
    int rc;

    if (!address_is_valid(&options->address) || options->connect_timeout_ms < 1)
        return -EINVAL;
    uplink = calloc(1, sizeof(*uplink));
    if (!uplink)
        return -ENOMEM;
    uplink->options = *options;
    rc = token_maker_init(&uplink->exchange.maker, options->host, options->instance);
    if (rc == 0 && !options_own(uplink))
        rc = -ENOMEM;
    if (rc < 0) {
        uplink_free(uplink);
        return rc;
    }
    label_make(uplink);
    uplink_init(uplink, loop);
    *ret_uplink = uplink;
    return 0;
}

void uplink_open(struct uplink *uplink)
{
    lb_assert(uplink->state == UPLINK_IDLE);
    // From the loop, so that nothing is posted before this returns.
    uplink->state = UPLINK_PAUSED;
    (void)uv_timer_start(&uplink->attempt_timer, on_pause_over, 0, 0);
}

void uplink_set_urgent(struct uplink *uplink, bool urgent)
{
    uplink->is_urgent = urgent;
    if (urgent && uplink->state == UPLINK_PAUSED &&
        uv_timer_get_due_in(&uplink->attempt_timer) > BACKOFF_URGENT_MAX_MS)
        pause_start(uplink);
}

void uplink_submit(struct uplink *uplink, const struct backend_op *op)
{
    if (uplink->state != UPLINK_CLOSED)
        exchange_submit(&uplink->exchange, op);
}

void uplink_flush(struct uplink *uplink)
{
    int64_t before_ms = uplink->exchange.soonest_ms;

    if (uplink->state != UPLINK_UP)
        return;
    exchange_send(&uplink->exchange);
    wire_flush(uplink->wire);
    if (uplink->exchange.soonest_ms < before_ms)
        command_timer_start(uplink, uplink->exchange.soonest_ms);
}

void uplink_close(struct uplink *uplink)
{
    if (uplink->state == UPLINK_CLOSED)
        return;
    uplink->state = UPLINK_CLOSED;
    if (uplink->resolve)
        resolve_abandon(uplink->resolve);
    uplink->resolve = NULL;
    exchange_deinit(&uplink->exchange);
    wire_drop(uplink);
    uv_close((uv_handle_t *)&uplink->attempt_timer, on_handle_closed);
    uv_close((uv_handle_t *)&uplink->command_timer, on_handle_closed);
}

void uplink_get_figures(const struct uplink *uplink, struct uplink_figures *ret_figures)
{
    *ret_figures = uplink->exchange.figures;
}
