// Hears what is published on this broker's channel, and sees to it that a connection on which
// nothing comes any more does not pass for a quiet one. What a hint is good for is the broker's
// affair; here is only checked that it has the form of one.
#include "daemon/redis/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/redis/command.h"
#include "daemon/redis/token.h"
#include "proto/limits.h"

// How long Redis still has to answer when it was this process that did not run.
#define CHANNEL_GRACE_MAX_MS 100

static const char ping[] = "*1\r\n$4\r\nPING\r\n";

struct channel {
    struct keeper keeper;
    void (*post)(void *context, const struct event *event);
    void *context;
    char *prefix;
    int64_t quiet_ms;
    int64_t answer_ms;

    uv_timer_t timer; // while it is up: when it has been quiet for long, or the answer is due
    int64_t heard_ms; // the last time that anything came
    int64_t due_ms;   // when the PING must be answered; LB_NONE: none is under way
    bool has_grace;   // that time is over, and the one more chance is being given
    int handles_open; // the timer, and what the keeper has

    struct channel_figures figures;
};

static void channel_free(struct channel *channel)
{
    keeper_deinit(&channel->keeper);
    free(channel->prefix);
    free(channel);
}

static void on_closed(void *context)
{
    struct channel *channel = context;

    if (--channel->handles_open == 0)
        channel_free(channel);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_closed(handle->data);
}

static void event_post(struct channel *channel, struct event *event)
{
    event->now_ms = clock_now_ms();
    channel->post(channel->context, event);
}

static void on_time(uv_timer_t *timer);

// Arms the timer for a time on CLOCK_BOOTTIME, which is judged again when it fires.
static void timer_start(struct channel *channel, int64_t when_ms)
{
    int64_t delay_ms = when_ms - clock_now_ms();

    uv_update_time(channel->keeper.loop);
    (void)uv_timer_start(&channel->timer, on_time, delay_ms > 0 ? (uint64_t)delay_ms : 1, 0);
}

static void ping_send(struct channel *channel, int64_t now_ms)
{
    uint64_t ignored;
    int rc = wire_append(channel->keeper.wire, ping, sizeof(ping) - 1, &ignored);

    if (rc < 0) {
        keeper_fail(&channel->keeper, strerror(-rc));
        return;
    }
    wire_flush(channel->keeper.wire);
    channel->due_ms = now_ms + channel->answer_ms;
    channel->has_grace = false;
    timer_start(channel, channel->due_ms);
}

// libuv runs timers before it reads: if this process was stopped or busy, the answer may be here.
// So the connection is only given up when it is still missing after the next turn of the loop, and
// after as much time as we ourselves were late.
static void answer_missing(struct channel *channel, int64_t now_ms)
{
    int64_t late_ms = now_ms - channel->due_ms;

    if (late_ms < 0) {
        timer_start(channel, channel->due_ms);
    } else if (!channel->has_grace) {
        channel->has_grace = true;
        timer_start(channel,
                    now_ms + (late_ms < CHANNEL_GRACE_MAX_MS ? late_ms : CHANNEL_GRACE_MAX_MS));
    } else {
        channel->figures.pings_unanswered++;
        keeper_fail(&channel->keeper, "a PING was not answered in time");
    }
}

static void on_time(uv_timer_t *timer)
{
    struct channel *channel = timer->data;
    int64_t now_ms = clock_now_ms();

    if (channel->due_ms != LB_NONE)
        answer_missing(channel, now_ms);
    else if (now_ms - channel->heard_ms >= channel->quiet_ms)
        ping_send(channel, now_ms);
    else
        timer_start(channel, channel->heard_ms + channel->quiet_ms);
}

static void on_up(void *context)
{
    struct channel *channel = context;
    struct event event = {.kind = EVENT_CHANNEL_UP};
    struct log_line line;

    log_begin(&line, LOG_LEVEL_NOTICE, "redis_channel_up");
    log_text(&line, "address", channel->keeper.label);
    log_end(&line);
    channel->figures.connects++;
    channel->heard_ms = clock_now_ms();
    channel->due_ms = LB_NONE;
    timer_start(channel, channel->heard_ms + channel->quiet_ms);
    event_post(channel, &event);
}

// What is behind `start` in a text; NULL when it does not begin so.
static const char *text_after(const char *text, const char *start)
{
    size_t length = strlen(start);

    return strncmp(text, start, length) == 0 ? text + length : NULL;
}

// A hint is `turn <key>`, `wait <key>` or `poll <key>` with a key of ours. False for everything
// else that somebody may have published.
static bool hint_read(const struct channel *channel, const struct resp *message,
                      struct event *ret_event)
{
    const char *key;
    size_t length;

    if (message->kind != RESP_TEXT || strlen(message->text) != message->length)
        return false;
    if ((key = text_after(message->text, "turn ")))
        ret_event->kind = EVENT_TURN;
    else if ((key = text_after(message->text, "poll ")))
        ret_event->kind = EVENT_OUTSIDER;
    else if ((key = text_after(message->text, "wait ")))
        ret_event->kind = EVENT_CONTENDED;
    else
        return false;
    key = text_after(key, channel->prefix);
    if (!key)
        return false;
    length = strlen(key);
    ret_event->key = key;
    return length >= 1 && length <= LB_KEY_BYTES_MAX;
}

static bool is_pong(const struct resp *reply)
{
    return reply->kind == RESP_ARRAY && reply->count == 2 && resp_is_text(&reply->items[0], "pong");
}

static bool is_message(const struct resp *reply)
{
    return reply->kind == RESP_ARRAY && reply->count == 3 &&
           resp_is_text(&reply->items[0], "message");
}

static void note_heard(struct channel *channel)
{
    bool was_asked = channel->due_ms != LB_NONE;

    channel->heard_ms = clock_now_ms();
    channel->due_ms = LB_NONE;
    if (was_asked)
        timer_start(channel, channel->heard_ms + channel->quiet_ms);
}

static void on_reply(void *context, const struct resp *reply)
{
    struct channel *channel = context;
    struct event event = {.kind = EVENT_TURN};

    if (!is_message(reply) && !is_pong(reply)) {
        // The end of the subscription looks like this, too.
        keeper_fail(&channel->keeper, "neither a message nor the answer to a PING");
        return;
    }
    note_heard(channel);
    if (is_pong(reply))
        return;
    channel->figures.messages++;
    if (hint_read(channel, &reply->items[2], &event))
        event_post(channel, &event);
}

static void on_down(void *context, bool was_up)
{
    struct channel *channel = context;
    struct event event = {.kind = EVENT_CHANNEL_DOWN};

    (void)uv_timer_stop(&channel->timer);
    if (was_up)
        event_post(channel, &event);
    else
        channel->figures.connect_failures++;
}

static int keeper_make(struct channel *channel, uv_loop_t *loop,
                       const struct channel_options *options)
{
    char name[sizeof(COMMAND_CHANNEL_START) + TOKEN_QUEUE_ID_LENGTH];
    char id[TOKEN_QUEUE_ID_LENGTH + 1];
    struct keeper_options keeper_options = {
        .address = options->address,
        .host = options->host,
        .channel = name,
        .connect_timeout_ms = options->connect_timeout_ms,
        .seed = options->seed,
        .failed_event = "redis_channel_failed",
        .down_event = "redis_channel_down",
    };
    struct keeper_handlers handlers = {on_up, on_reply, on_down, on_closed, channel};

    token_queue_id(options->instance, id);
    (void)snprintf(name, sizeof(name), COMMAND_CHANNEL_START "%s", id);
    return keeper_init(&channel->keeper, loop, &keeper_options, &handlers);
}

int channel_new(uv_loop_t *loop, const struct channel_options *options,
                struct channel **ret_channel)
{
    struct channel *channel;
    int rc = 0;

    if (options->quiet_ms < 1 || options->answer_ms < 1)
        return -EINVAL;
    channel = calloc(1, sizeof(*channel));
    if (!channel)
        return -ENOMEM;
    channel->prefix = strdup(options->prefix);
    if (!channel->prefix)
        rc = -ENOMEM;
    if (rc == 0)
        rc = keeper_make(channel, loop, options);
    if (rc < 0) {
        channel_free(channel);
        return rc;
    }
    channel->post = options->post;
    channel->context = options->context;
    channel->quiet_ms = options->quiet_ms;
    channel->answer_ms = options->answer_ms;
    (void)uv_timer_init(loop, &channel->timer); // does not fail
    channel->timer.data = channel;
    channel->handles_open = 2;
    *ret_channel = channel;
    return 0;
}

void channel_open(struct channel *channel)
{
    keeper_open(&channel->keeper);
}

void channel_follow(struct channel *channel, const char *run_id)
{
    keeper_want(&channel->keeper, run_id);
}

void channel_close(struct channel *channel)
{
    if (channel->keeper.state == KEEPER_CLOSED)
        return;
    keeper_close(&channel->keeper);
    uv_close((uv_handle_t *)&channel->timer, on_timer_closed);
}

void channel_get_figures(const struct channel *channel, struct channel_figures *ret_figures)
{
    *ret_figures = channel->figures;
}
