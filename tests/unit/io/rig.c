// The rig. It looks at nothing but what a client receives, and at the books at the end.
#include "tests/unit/io/rig.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "tests/unit/io/fault.h"

#define PATIENCE_S 20

struct rig rig;

static int64_t rig_now(void *context)
{
    (void)context;
    return clock_now_ms();
}

static int64_t rig_wall(void *context)
{
    (void)context;
    return 1000;
}

static void count_turn(void *context)
{
    (void)context;
    rig.turns++;
}

static void keep_turning(uv_timer_t *timer)
{
    (void)timer;
}

static uv_timer_t ticker;

// Not from the heap, which may fail.
static char texts[RIG_CLIENTS_MAX][RIG_TEXT_MAX];
static int next_text;

void rig_setup(void)
{
    struct broker_config config = {
        .ttl_max_ms = 30000,
        .max_wait_ms = 60000,
        .retry_max_ms = 1000,
        .requests_max = 1000,
        .own_uid = 12345,
        .server = "test",
        .instance = "i",
        .host = "h",
        .backend_kind = "memory",
    };
    struct memory_backend_options options = {
        .ttl_max_ms = 30000,
        .now_ms = rig_now,
        .wall_us = rig_wall,
        .post = pump_post,
        .context = &rig.pump,
    };
    int64_t blocked_until_ms;

    ck_assert_int_eq(uv_loop_init(&rig.loop), 0);
    ck_assert_int_eq(broker_new(&config, 1, &rig.broker), 0);
    ck_assert_int_eq(memory_backend_new(&options, &blocked_until_ms, &rig.memory), 0);
    ck_assert_int_eq(pump_init(&rig.pump, &rig.loop, rig.broker), 0);
    conn_table_init(&rig.conns, &rig.loop, &rig.pump);
    rig.conns.prefix = "lockbroker:";
    rig.conns.limits = (struct conn_limits){100, 1 << 20, 30000, 10000};
    rig.pump.conns = &rig.conns;
    rig.pump.memory = rig.memory;
    rig.pump.after_turn = count_turn;
    // So that a turn that waits for something does not wait long.
    (void)uv_timer_init(&rig.loop, &ticker);
    (void)uv_timer_start(&ticker, keep_turning, 2, 2);
    memory_backend_open(rig.memory);
    pump_run(&rig.pump);
}

void rig_teardown(void)
{
    fault_memory_fail(0, false);
    broker_check(rig.broker);
    conn_table_close(&rig.conns);
    pump_close(&rig.pump);
    uv_close((uv_handle_t *)&ticker, NULL);
    (void)uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&rig.loop), 0);
    ck_assert_int_eq((int)rig.conns.count, 0);
    broker_free(rig.broker);
    memory_backend_free(rig.memory);
    pump_deinit(&rig.pump);
}

void rig_turn(void)
{
    for (int i = 0; i < 5; i++)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
}

struct rig_client rig_client_of(int fd)
{
    struct rig_client client = {.fd = fd, .text = texts[next_text++ % RIG_CLIENTS_MAX]};

    client.text[0] = '\0';
    return client;
}

struct rig_client rig_connect(void)
{
    int ends[2];

    // No ck_assert: it would take the memory that is to fail for the broker.
    int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);

    lb_assert(r == 0);
    conn_table_accept(&rig.conns, ends[1]);
    return rig_client_of(ends[0]);
}

void rig_disconnect(struct rig_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

void rig_read(struct rig_client *client)
{
    ssize_t length;

    do {
        length =
            recv(client->fd, client->text + client->length, RIG_TEXT_MAX - 1 - client->length, 0);
        if (length > 0)
            client->length += (size_t)length;
        client->text[client->length] = '\0';
    } while (length > 0);
    if (length == 0 || errno == ECONNRESET)
        client->ended = true;
}

size_t rig_send(struct rig_client *client, const char *bytes, size_t length)
{
    ssize_t sent = send(client->fd, bytes, length, MSG_NOSIGNAL);

    return sent < 0 ? 0 : (size_t)sent;
}

void rig_say(struct rig_client *client, const char *line)
{
    ck_assert_uint_eq(rig_send(client, line, strlen(line)), strlen(line));
    ck_assert_uint_eq(rig_send(client, "\n", 1), 1);
}

bool rig_heard(const struct rig_client *client, const char *text)
{
    return strstr(client->text, text) != NULL;
}

int rig_lines(const struct rig_client *client)
{
    int lines = 0;

    for (const char *at = client->text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

void rig_forget(struct rig_client *client)
{
    client->length = 0;
    client->text[0] = '\0';
}

void rig_until(bool (*condition)(struct rig_client *client, const char *text),
               struct rig_client *client, const char *text)
{
    time_t end = time(NULL) + PATIENCE_S;

    while (!condition(client, text)) {
        ck_assert_msg(time(NULL) < end, "never: %s; so far: %.2000s", text, client->text);
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    }
}

static bool has_heard(struct rig_client *client, const char *text)
{
    rig_read(client);
    return rig_heard(client, text);
}

static bool has_ended(struct rig_client *client, const char *text)
{
    (void)text;
    rig_read(client);
    return client->ended;
}

void rig_hear(struct rig_client *client, const char *text)
{
    rig_until(has_heard, client, text);
}

void rig_hear_end(struct rig_client *client)
{
    rig_until(has_ended, client, "the end of the connection");
}
