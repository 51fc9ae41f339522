// The link as the node sees it, and the connecting, greeting, giving up and pausing of
// daemon/redis/uplink.c, step for step, with times to be woken at in the place of timers.
#include "tests/sim/link.h"

#include <errno.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/redis/backoff.h"
#include "daemon/redis/command.h"
#include "daemon/redis/exchange.h"
#include "daemon/redis/handshake.h"
#include "tests/sim/link_wire.h"
#include "tests/sim/memory.h"

#define LINK_CONNECT_TIMEOUT_MS 2000
#define LINK_GOOD_MS            1000 // the pauses begin anew after a link that was up for so long
#define LINK_GRACE_MAX_MS       100
#define LINK_HOST_BYTES         16

enum link_state {
    LINK_IDLE,
    LINK_PAUSED,
    LINK_TRYING,
    LINK_UP,
};

struct link {
    struct sim *sim;
    struct server *server;
    struct link_options options;
    enum link_state state;
    bool is_urgent;
    char host[LINK_HOST_BYTES];
    int64_t attempt_ms; // the end of the pause, or the time limit of an attempt
    int64_t command_ms; // when to see whether a command was not answered in time
    int64_t grace_for_ms;
    int64_t up_since_ms;
    int64_t held_until_us; // a partition
    struct wire *wire;
    struct handshake handshake;
    struct exchange exchange;
    struct rng rng;
    struct backoff backoff;
};

// Whose clock is read: that of the node whose link is at work.
static const struct link *at_work;

int64_t clock_now_ms(void)
{
    lb_assert(at_work);
    return sim_clock_us(at_work->options.clock, at_work->sim->now_us) / 1000;
}

static const struct link *enter(const struct link *link)
{
    const struct link *before = at_work;

    at_work = link;
    return before;
}

static void leave(const struct link *before)
{
    at_work = before;
}

static void event_post(struct link *link, struct event *event)
{
    event->now_ms = clock_now_ms();
    link->options.post(link->options.context, event);
}

static void down_post(struct link *link)
{
    struct event event = {.kind = EVENT_BACKEND_DOWN};

    event_post(link, &event);
}

static void pause_start(struct link *link)
{
    link->state = LINK_PAUSED;
    link->attempt_ms = clock_now_ms() + backoff_next(&link->backoff, link->is_urgent, &link->rng);
}

static void wire_drop(struct link *link)
{
    if (link->wire)
        wire_close(link->wire);
    link->wire = NULL;
}

static void attempt_fail(struct link *link, const char *reason)
{
    sim_tell(link->sim, "n%d: no link: %s", link->options.node, reason);
    link->exchange.figures.connect_failures++;
    wire_drop(link);
    pause_start(link);
    down_post(link);
}

static void link_fail(struct link *link, const char *reason)
{
    sim_tell(link->sim, "n%d: link down: %s", link->options.node, reason);
    if (clock_now_ms() - link->up_since_ms >= LINK_GOOD_MS)
        backoff_reset(&link->backoff);
    link->command_ms = INT64_MAX;
    exchange_fail(&link->exchange);
    wire_drop(link);
    pause_start(link);
    down_post(link);
}

static void attempt_start(struct link *link)
{
    link->state = LINK_TRYING;
    link->attempt_ms = clock_now_ms() + LINK_CONNECT_TIMEOUT_MS;
    link->wire = wire_open(link->sim, link->server, link->options.node, link->options.wake,
                           link->options.context);
    if (!link->wire) {
        attempt_fail(link, "no memory");
        return;
    }
    if (link->sim->now_us < link->held_until_us)
        wires_hold(link->options.node, link->held_until_us);
}

static void on_opened(struct link *link)
{
    struct handshake *handshake = &link->handshake;
    struct handshake_options options = {
        .password = SERVER_PASSWORD,
        .database = SERVER_DATABASE,
        .host = link->host,
        .now_ms = clock_now_ms(),
    };
    int rc = 0;

    handshake_init(handshake, &options);
    for (size_t i = 0; i < handshake->steps_count && rc == 0; i++) {
        char *bytes = NULL;
        size_t length = 0;
        uint64_t ignored;

        rc = handshake_format(handshake, i, &bytes, &length);
        if (rc == 0)
            rc = wire_append(link->wire, bytes, length, &ignored);
        command_free(bytes, length);
    }
    if (rc < 0) {
        attempt_fail(link, strerror(-rc));
        return;
    }
    wire_greet(link->wire, handshake->steps_count);
    wire_flush(link->wire);
}

static void link_serve(struct link *link)
{
    struct event event = {.kind = EVENT_BACKEND_UP};

    link->attempt_ms = INT64_MAX;
    link->state = LINK_UP;
    link->up_since_ms = clock_now_ms();
    link->exchange.figures.connects++;
    exchange_start(&link->exchange, link->wire, &link->handshake.scripts);
    handshake_facts(&link->handshake, &event.facts);
    sim_tell(link->sim, "n%d: link up, run %.8s", link->options.node, link->handshake.run_id);
    event_post(link, &event);
}

static void on_reply(struct link *link, const struct resp *reply)
{
    const char *reason = NULL;
    int rc;

    if (link->state == LINK_UP) {
        if (!exchange_take(&link->exchange, reply, &reason))
            link_fail(link, reason);
        return;
    }
    rc = handshake_take(&link->handshake, reply);
    if (rc == HANDSHAKE_E_DONE)
        link_serve(link);
    else if (rc == HANDSHAKE_E_REFUSED)
        attempt_fail(link, link->handshake.problem);
}

static void on_end(struct link *link, const char *reason)
{
    if (link->state == LINK_UP)
        link_fail(link, reason);
    else
        attempt_fail(link, reason);
}

static void item_take(struct link *link, const struct wire_item *item)
{
    switch (item->kind) {
    case ITEM_OPENED:
        on_opened(link);
        break;
    case ITEM_REPLY:
        on_reply(link, item->reply);
        break;
    case ITEM_END:
        on_end(link, item->reason);
        break;
    }
    resp_free(item->reply);
}

static void command_timer_start(struct link *link, int64_t when_ms)
{
    int64_t soonest_ms = clock_now_ms() + 1;

    link->command_ms = when_ms > soonest_ms ? when_ms : soonest_ms;
}

// As in uplink.c: a process that did not run first looks again.
static void command_time_up(struct link *link, int64_t deadline_ms, int64_t now_ms)
{
    int64_t late_ms = now_ms - deadline_ms;

    if (deadline_ms <= link->grace_for_ms) {
        link->exchange.figures.command_timeouts++;
        link_fail(link, "a command was not answered in time");
        return;
    }
    link->grace_for_ms = now_ms;
    command_timer_start(link, now_ms + (late_ms < LINK_GRACE_MAX_MS ? late_ms : LINK_GRACE_MAX_MS));
}

static void on_command_time(struct link *link)
{
    int64_t deadline_ms = exchange_deadline(&link->exchange);
    int64_t now_ms = clock_now_ms();

    link->command_ms = INT64_MAX;
    if (deadline_ms <= now_ms)
        command_time_up(link, deadline_ms, now_ms);
    else if (deadline_ms != INT64_MAX)
        command_timer_start(link, deadline_ms);
}

static void on_attempt_time(struct link *link)
{
    link->attempt_ms = INT64_MAX;
    if (link->state == LINK_PAUSED)
        attempt_start(link);
    else
        attempt_fail(link, "no connection or no greeting in time");
}

void link_run(struct link *link)
{
    const struct link *before = enter(link);
    struct wire_item item;

    while (link->wire && wire_take(link->wire, &item))
        item_take(link, &item);
    if (link->wire)
        wire_flush(link->wire);
    if (link->command_ms <= clock_now_ms())
        on_command_time(link);
    if (link->attempt_ms <= clock_now_ms())
        on_attempt_time(link);
    leave(before);
}

struct link *link_new(struct sim *sim, struct server *server, const struct link_options *options)
{
    struct link *link = sim_alloc(sizeof(*link));
    int rc;

    link->sim = sim;
    link->server = server;
    link->options = *options;
    link->options.instance = NULL;
    link->attempt_ms = link->command_ms = INT64_MAX;
    (void)snprintf(link->host, sizeof(link->host), "n%d", options->node);
    rng_init(&link->rng, rng_next(&sim->rng));
    backoff_reset(&link->backoff);
    exchange_init(&link->exchange);
    link->exchange.prefix = options->prefix;
    link->exchange.post = options->post;
    link->exchange.context = options->context;
    rc = token_maker_init(&link->exchange.maker, link->host, options->instance);
    lb_assert(rc == 0);
    return link;
}

void link_free(struct link *link)
{
    exchange_deinit(&link->exchange);
    wire_drop(link);
    free(link);
}

void link_open(struct link *link)
{
    const struct link *before = enter(link);

    link->state = LINK_PAUSED;
    link->attempt_ms = clock_now_ms();
    leave(before);
}

void link_submit(struct link *link, const struct backend_op *op)
{
    const struct link *before = enter(link);

    exchange_submit(&link->exchange, op);
    leave(before);
}

void link_flush(struct link *link)
{
    const struct link *before = enter(link);
    int64_t before_ms = link->exchange.soonest_ms;

    if (link->state == LINK_UP) {
        exchange_send(&link->exchange);
        wire_flush(link->wire);
        if (link->exchange.soonest_ms < before_ms)
            command_timer_start(link, link->exchange.soonest_ms);
    }
    leave(before);
}

void link_set_urgent(struct link *link, bool urgent)
{
    const struct link *before = enter(link);

    link->is_urgent = urgent;
    if (urgent && link->state == LINK_PAUSED &&
        link->attempt_ms - clock_now_ms() > BACKOFF_URGENT_MAX_MS)
        pause_start(link);
    leave(before);
}

int64_t link_next_ms(const struct link *link)
{
    return link->attempt_ms < link->command_ms ? link->attempt_ms : link->command_ms;
}

void link_partition(struct link *link, int64_t until_true_us)
{
    sim_tell(link->sim, "n%d: cut off from the server for %lld ms", link->options.node,
             (long long)(until_true_us - link->sim->now_us) / 1000);
    if (link->held_until_us < until_true_us)
        link->held_until_us = until_true_us;
    wires_hold(link->options.node, until_true_us);
}

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}
