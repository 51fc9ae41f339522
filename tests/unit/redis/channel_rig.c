// Runs a channel as the daemon would.
#include "tests/unit/redis/channel_rig.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"

static void on_event(void *context, const struct event *event)
{
    struct ear *ear = context;
    bool was_inside = rig_is_inside;

    rig_is_inside = false;
    ck_assert(event->now_ms > 0 && event->now_ms <= clock_now_ms());
    if (event->kind == EVENT_CHANNEL_UP) {
        ck_assert_int_eq(ear->ups++, ear->downs);
    } else if (event->kind == EVENT_CHANNEL_DOWN) {
        ck_assert_int_eq(++ear->downs, ear->ups);
    } else {
        ck_assert(event->kind == EVENT_TURN || event->kind == EVENT_CONTENDED ||
                  event->kind == EVENT_OUTSIDER);
        ck_assert_int_eq(ear->ups, ear->downs + 1);
        ear->turns += event->kind == EVENT_TURN;
        ear->waits += event->kind == EVENT_CONTENDED;
        ear->polls += event->kind == EVENT_OUTSIDER;
        ck_assert_uint_le(strlen(event->key), LB_KEY_BYTES_MAX);
        (void)snprintf(ear->key, sizeof(ear->key), "%s", event->key);
    }
    rig_is_inside = was_inside;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void ear_init(struct ear *ear, const struct server *server)
{
    (void)signal(SIGPIPE, SIG_IGN);
    memset(ear, 0, sizeof(*ear));
    ck_assert_int_eq(uv_loop_init(&ear->loop), 0);
    ck_assert_int_eq(uv_timer_init(&ear->loop, &ear->tick), 0);
    ck_assert_int_eq(uv_timer_start(&ear->tick, on_tick, 10, 10), 0);
    ear->options = (struct channel_options){
        .address = {.path = server ? server->path : NULL},
        .prefix = "lock:",
        .host = RIG_HOST,
        .instance = RIG_INSTANCE,
        .connect_timeout_ms = 5000,
        .quiet_ms = CHANNEL_QUIET_MS,
        .answer_ms = CHANNEL_ANSWER_MS,
        .seed = 1,
        .post = on_event,
        .context = ear,
    };
}

void ear_use_tcp(struct ear *ear, const char *host, int port)
{
    ear->options.address.path = NULL;
    ear->options.address.host = host;
    ear->options.address.port = port;
}

void ear_open(struct ear *ear)
{
    ck_assert_int_eq(channel_new(&ear->loop, &ear->options, &ear->channel), 0);
    channel_open(ear->channel);
}

void ear_open_up(struct ear *ear)
{
    ear_open(ear);
    ear_await_ups(ear, 1);
}

void ear_close(struct ear *ear)
{
    if (ear->channel)
        channel_close(ear->channel);
    uv_close((uv_handle_t *)&ear->tick, NULL);
    ck_assert_int_eq(uv_run(&ear->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&ear->loop), 0);
}

static void run_once(struct ear *ear)
{
    rig_is_inside = true;
    (void)uv_run(&ear->loop, UV_RUN_ONCE);
    rig_is_inside = false;
}

static int failures_of(const struct ear *ear)
{
    return (int)ear_figures(ear).connect_failures;
}

static int ups_of(const struct ear *ear)
{
    return ear->ups;
}

static int downs_of(const struct ear *ear)
{
    return ear->downs;
}

static int hints_of(const struct ear *ear)
{
    return ear->turns + ear->waits + ear->polls;
}

static void await(struct ear *ear, int (*count)(const struct ear *ear), int enough)
{
    int64_t until_ms = clock_now_ms() + RIG_PATIENCE_MS;

    while (count(ear) < enough) {
        ck_assert_msg(clock_now_ms() < until_ms, "what the test waits for did not come");
        run_once(ear);
    }
}

void ear_await_ups(struct ear *ear, int ups)
{
    await(ear, ups_of, ups);
}

void ear_await_downs(struct ear *ear, int downs)
{
    await(ear, downs_of, downs);
}

void ear_await_hints(struct ear *ear, int hints)
{
    await(ear, hints_of, hints);
}

void ear_await_failures(struct ear *ear, int failures)
{
    await(ear, failures_of, failures);
}

void ear_run(struct ear *ear, int64_t for_ms)
{
    int64_t until_ms = clock_now_ms() + for_ms;

    while (clock_now_ms() < until_ms)
        run_once(ear);
}

struct channel_figures ear_figures(const struct ear *ear)
{
    struct channel_figures figures;

    channel_get_figures(ear->channel, &figures);
    return figures;
}

long long ear_publish(const struct server *server, const char *bytes, size_t length)
{
    redisReply *reply = server_command(server, "PUBLISH " EAR_CHANNEL " %b", bytes, length);
    long long heard = reply->integer;

    freeReplyObject(reply);
    return heard;
}

long long ear_say(const struct server *server, const char *text)
{
    return ear_publish(server, text, strlen(text));
}

long long ear_hearers(const struct server *server)
{
    redisReply *reply = server_command(server, "PUBSUB NUMSUB " EAR_CHANNEL);
    long long count = reply->element[1]->integer;

    freeReplyObject(reply);
    return count;
}

void ear_assert_hears(struct ear *ear, const struct server *server)
{
    int hints = hints_of(ear);

    ck_assert_int_eq(ear_say(server, "turn lock:last"), 1);
    ear_await_hints(ear, hints + 1);
    ck_assert_str_eq(ear->key, "last");
    ck_assert_int_eq(hints_of(ear), hints + 1);
}
