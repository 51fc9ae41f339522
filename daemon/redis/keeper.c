// Brings a connection up and keeps it up. Every callback of libuv ends here in a changed state and
// one of the handlers; what is said on the connection once it is up is theirs.
#include "daemon/redis/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/redis/command.h"

// A connection that was up for so long was a good one: the pauses begin anew after it.
#define KEEPER_GOOD_MS 1000

static void attempt_start(struct keeper *keeper);
static void address_try(struct keeper *keeper);

// The address as it stands in a URL: 127.0.0.1:6379, [::1]:6379, or a path.
static void label_make(struct keeper *keeper)
{
    const struct redis_address *address = &keeper->options.address;
    bool is_ipv6 = address->host && strchr(address->host, ':');

    if (address->path)
        (void)snprintf(keeper->label, sizeof(keeper->label), "%s", address->path);
    else
        (void)snprintf(keeper->label, sizeof(keeper->label), "%s%s%s:%d", is_ipv6 ? "[" : "",
                       address->host, is_ipv6 ? "]" : "", address->port);
}

static void on_pause_over(uv_timer_t *timer)
{
    attempt_start(timer->data);
}

static void pause_start(struct keeper *keeper)
{
    int64_t pause_ms = backoff_next(&keeper->backoff, keeper->is_urgent, &keeper->rng);

    keeper->state = KEEPER_PAUSED;
    uv_update_time(keeper->loop);
    (void)uv_timer_start(&keeper->timer, on_pause_over, (uint64_t)pause_ms, 0);
}

static void wire_drop(struct keeper *keeper)
{
    if (keeper->wire)
        wire_close(keeper->wire);
    keeper->wire = NULL;
    keeper->is_connected = false;
}

// The user is told while the wire can still say what was written.
static void down(struct keeper *keeper)
{
    bool was_up = keeper->state == KEEPER_UP;

    keeper->handlers.on_down(keeper->handlers.context, was_up);
    wire_drop(keeper);
    pause_start(keeper);
}

static void failure_log(struct keeper *keeper, const char *reason, const char *hint)
{
    struct log_line line;
    int64_t held_back;

    if (!gate_pass(&keeper->failures, reason, clock_now_ms(), &held_back))
        return;
    log_begin(&line, LOG_LEVEL_WARNING, keeper->options.failed_event);
    log_text(&line, "address", keeper->label);
    log_text(&line, "reason", reason);
    log_text(&line, "hint", hint);
    log_number(&line, "not_logged", held_back > 0 ? held_back : LB_NONE);
    log_end(&line);
}

// The attempt is over: pause. `reason` may lie in the handshake; `hint` says what to do, or is
// NULL.
static void attempt_fail(struct keeper *keeper, const char *reason, const char *hint)
{
    failure_log(keeper, reason, hint);
    down(keeper);
}

// This address is no good: go on with the next one, if there is any.
static void address_fail(struct keeper *keeper, const char *reason, const char *hint)
{
    if (keeper->options.address.path || keeper->address_next >= keeper->result.count) {
        attempt_fail(keeper, reason, hint);
        return;
    }
    wire_drop(keeper);
    address_try(keeper);
}

void keeper_fail(struct keeper *keeper, const char *reason)
{
    int64_t up_ms = clock_now_ms() - keeper->up_since_ms;
    struct log_line line;

    lb_assert(keeper->state == KEEPER_UP);
    log_begin(&line, LOG_LEVEL_WARNING, keeper->options.down_event);
    log_text(&line, "address", keeper->label);
    log_text(&line, "reason", reason);
    log_number(&line, "up_ms", up_ms);
    log_end(&line);
    if (up_ms >= KEEPER_GOOD_MS)
        backoff_reset(&keeper->backoff);
    down(keeper);
}

void keeper_want(struct keeper *keeper, const char *run_id)
{
    (void)snprintf(keeper->wanted_run_id, sizeof(keeper->wanted_run_id), "%s",
                   run_id ? run_id : "");
    if (keeper->state == KEEPER_UP && run_id && strcmp(keeper->handshake.run_id, run_id) != 0)
        keeper_fail(keeper, "not the server that runs the scripts");
}

static void on_attempt_timeout(uv_timer_t *timer)
{
    struct keeper *keeper = timer->data;

    if (keeper->resolve) {
        resolve_abandon(keeper->resolve);
        keeper->resolve = NULL;
        attempt_fail(keeper, "the name was not resolved in time", "see whether DNS answers");
    } else if (keeper->is_connected) {
        address_fail(keeper, "connected, but no greeting in time",
                     "is it Redis that listens there, and is it stopped or busy?");
    } else {
        address_fail(keeper, "no connection in time",
                     "is the address right, and does a firewall drop the packets?");
    }
}

static void attempt_timer_start(struct keeper *keeper)
{
    uint64_t timeout_ms = (uint64_t)keeper->options.connect_timeout_ms;

    uv_update_time(keeper->loop);
    (void)uv_timer_start(&keeper->timer, on_attempt_timeout, timeout_ms, 0);
}

static void on_wire_open(void *context)
{
    struct keeper *keeper = context;
    struct handshake *handshake = &keeper->handshake;
    const struct redis_address *address = &keeper->options.address;
    struct handshake_options options = {
        .user = address->user,
        .password = address->password,
        .database = address->database,
        .host = keeper->options.host,
        .channel = keeper->options.channel,
        .run_id = keeper->wanted_run_id[0] ? keeper->wanted_run_id : NULL,
        .now_ms = clock_now_ms(),
    };
    int rc = 0;

    keeper->is_connected = true;
    handshake_init(handshake, &options);
    for (size_t i = 0; i < handshake->steps_count && rc == 0; i++) {
        char *bytes = NULL;
        size_t length = 0;
        uint64_t ignored;

        rc = handshake_format(handshake, i, &bytes, &length);
        if (rc == 0)
            rc = wire_append(keeper->wire, bytes, length, &ignored);
        command_free(bytes, length);
    }
    if (rc < 0)
        address_fail(keeper, strerror(-rc), NULL);
    else
        wire_flush(keeper->wire);
}

static void greeting_end(struct keeper *keeper)
{
    (void)uv_timer_stop(&keeper->timer);
    keeper->state = KEEPER_UP;
    keeper->up_since_ms = clock_now_ms();
    gate_reset(&keeper->failures);
    keeper->handlers.on_up(keeper->handlers.context);
}

static void on_wire_reply(void *context, const struct resp *reply)
{
    struct keeper *keeper = context;
    int rc;

    if (keeper->state == KEEPER_UP) {
        keeper->handlers.on_reply(keeper->handlers.context, reply);
        return;
    }
    rc = handshake_take(&keeper->handshake, reply);
    if (rc == HANDSHAKE_E_DONE)
        greeting_end(keeper);
    else if (rc == HANDSHAKE_E_REFUSED)
        address_fail(keeper, keeper->handshake.problem, keeper->handshake.hint);
}

static void on_wire_end(void *context, const char *reason)
{
    struct keeper *keeper = context;

    if (keeper->state == KEEPER_UP)
        keeper_fail(keeper, reason);
    else
        address_fail(keeper, reason, NULL);
}

static struct wire_handlers wire_handlers_make(struct keeper *keeper)
{
    return (struct wire_handlers){on_wire_open, on_wire_reply, on_wire_end, keeper};
}

// Connects to the next address that does not fail at once.
static void address_try(struct keeper *keeper)
{
    struct wire_handlers handlers = wire_handlers_make(keeper);
    int rc = -EADDRNOTAVAIL;

    while (keeper->address_next < keeper->result.count) {
        struct sockaddr_storage *address = &keeper->result.addresses[keeper->address_next++];

        rc = wire_connect(keeper->loop, (const struct sockaddr *)address, &handlers, &keeper->wire);
        if (rc == 0) {
            attempt_timer_start(keeper);
            return;
        }
    }
    attempt_fail(keeper, strerror(-rc), NULL);
}

static void on_resolved(void *context, int status, const struct resolve_result *result)
{
    struct keeper *keeper = context;

    keeper->resolve = NULL;
    if (status < 0) {
        attempt_fail(keeper, uv_strerror(status), NULL);
        return;
    }
    keeper->result = *result;
    address_try(keeper);
}

static void path_try(struct keeper *keeper)
{
    struct wire_handlers handlers = wire_handlers_make(keeper);
    int rc =
        wire_connect_path(keeper->loop, keeper->options.address.path, &handlers, &keeper->wire);

    if (rc < 0)
        attempt_fail(keeper, strerror(-rc), NULL);
}

static void host_try(struct keeper *keeper)
{
    const struct redis_address *address = &keeper->options.address;
    int rc;

    if (resolve_numeric(address->host, address->port, &keeper->result)) {
        address_try(keeper);
        return;
    }
    rc = resolve_start(keeper->loop, address->host, address->port, on_resolved, keeper,
                       &keeper->resolve);
    if (rc < 0)
        attempt_fail(keeper, strerror(-rc), NULL);
}

static void attempt_start(struct keeper *keeper)
{
    keeper->state = KEEPER_TRYING;
    keeper->address_next = 0;
    keeper->result.count = 0;
    attempt_timer_start(keeper);
    if (keeper->options.address.path)
        path_try(keeper);
    else
        host_try(keeper);
}

static bool address_is_valid(const struct redis_address *address)
{
    if (!address->host == !address->path)
        return false;
    if (address->database < 0)
        return false;
    if (address->path)
        return address->path[0] != '\0' && strlen(address->path) <= WIRE_PATH_BYTES_MAX;
    return address->port >= 1 && address->port <= 65535 && resolve_host_is_valid(address->host);
}

// Points *text to a copy that `keeper` owns. NULL stays NULL.
static bool text_own(struct keeper *keeper, size_t slot, const char **text)
{
    if (!*text)
        return true;
    keeper->texts[slot] = strdup(*text);
    *text = keeper->texts[slot];
    return *text != NULL;
}

static bool options_own(struct keeper *keeper)
{
    struct keeper_options *options = &keeper->options;
    struct redis_address *address = &options->address;

    return text_own(keeper, 0, &address->host) && text_own(keeper, 1, &address->path) &&
           text_own(keeper, 2, &address->user) && text_own(keeper, 3, &address->password) &&
           text_own(keeper, 4, &options->host) && text_own(keeper, 5, &options->channel);
}

void keeper_deinit(struct keeper *keeper)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(keeper->texts); i++) {
        if (keeper->texts[i])
            explicit_bzero(keeper->texts[i], strlen(keeper->texts[i]));
        free(keeper->texts[i]);
    }
    explicit_bzero(keeper, sizeof(*keeper));
}

int keeper_init(struct keeper *keeper, uv_loop_t *loop, const struct keeper_options *options,
                const struct keeper_handlers *handlers)
{
    if (!address_is_valid(&options->address) || options->connect_timeout_ms < 1)
        return -EINVAL;
    *keeper = (struct keeper){.loop = loop, .options = *options, .handlers = *handlers};
    if (!options_own(keeper)) {
        keeper_deinit(keeper);
        return -ENOMEM;
    }
    label_make(keeper);
    rng_init(&keeper->rng, options->seed);
    backoff_reset(&keeper->backoff);
    (void)uv_timer_init(loop, &keeper->timer); // does not fail: it only fills the struct in
    keeper->timer.data = keeper;
    return 0;
}

void keeper_open(struct keeper *keeper)
{
    lb_assert(keeper->state == KEEPER_IDLE);
    keeper->state = KEEPER_PAUSED;
    (void)uv_timer_start(&keeper->timer, on_pause_over, 0, 0);
}

void keeper_set_urgent(struct keeper *keeper, bool urgent)
{
    keeper->is_urgent = urgent;
    if (urgent && keeper->state == KEEPER_PAUSED &&
        uv_timer_get_due_in(&keeper->timer) > BACKOFF_URGENT_MAX_MS)
        pause_start(keeper);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct keeper *keeper = handle->data;

    keeper->handlers.on_closed(keeper->handlers.context);
}

void keeper_close(struct keeper *keeper)
{
    lb_assert(keeper->state != KEEPER_CLOSED);
    keeper->state = KEEPER_CLOSED;
    if (keeper->resolve)
        resolve_abandon(keeper->resolve);
    keeper->resolve = NULL;
    wire_drop(keeper);
    uv_close((uv_handle_t *)&keeper->timer, on_timer_closed);
}
