// The hot paths of the broker, from a client's line to the command for Redis and from Redis' reply
// to the line for the client, with nothing in between that depends on the machine: no clock, no
// socket. For counting instructions (instructions.py), which are the same in every run.
//
//     bench_paths acquire | release | renew | parse | write
//
// The function path_NAME() is what is to be counted; it runs LOCKS times (renew: once, for all).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/broker.h"
#include "daemon/redis/command.h"
#include "proto/reply.h"
#include "proto/request.h"

#define LOCKS  1000
#define TTL_MS 30000

#define ACQUIRE_LINE                                                                               \
    "{\"id\":1,\"op\":\"acquire\",\"key\":\"jobs/%04d\",\"owner\":\"worker-1\",\"ttl_ms\":30000,"  \
    "\"wait_ms\":-1}"
#define RELEASE_LINE "{\"id\":2,\"op\":\"release\",\"key\":\"jobs/%04d\",\"owner\":\"worker-1\"}"

static struct {
    struct broker *broker;
    struct effects effects;
    struct token_maker maker;
    struct command_server server;
    struct resp_reader reader;
    struct request request;
    struct buf out;
    int64_t now_ms;
    int64_t fence;
    struct backend_op pending[LOCKS]; // sent to the backend, and not answered
    size_t pending_count;
    char acquires[LOCKS][128]; // lines, made beforehand
    char releases[LOCKS][128];
} bench;

static void must(bool is_so)
{
    if (!is_so)
        abort();
}

// What the edge does with effects: replies are written, operations kept for take_replies().
static void carry_out(void)
{
    for (size_t i = 0; i < bench.effects.count; i++) {
        const struct effect *effect = &bench.effects.items[i];

        if (effect->kind == EFFECT_REPLY)
            must(reply_write(&bench.out, &effect->reply) == 0);
        if (effect->kind != EFFECT_BACKEND)
            continue;
        must(bench.pending_count < LOCKS);
        bench.pending[bench.pending_count++] = effect->op;
    }
    buf_consume(&bench.out, buf_length(&bench.out));
}

static void step(struct event *event)
{
    bool is_done = false;

    event->now_ms = bench.now_ms;
    while (!is_done) {
        is_done = broker_step(bench.broker, event, &bench.effects);
        carry_out();
    }
}

static void take_line(const char *line)
{
    struct event event = {.kind = EVENT_REQUEST, .session = 1, .request = &bench.request};
    struct reply refusal;

    must(request_parse(line, strlen(line), &bench.request, &refusal) == 0);
    step(&event);
}

static struct resp *reply_read(const char *bytes)
{
    struct resp *reply;

    must(resp_reader_feed(&bench.reader, bytes, strlen(bytes)) == 0);
    must(resp_reader_next(&bench.reader, &reply) == RESP_E_REPLY);
    return reply;
}

// One command for `count` operations, and what Redis answers when all goes well.
static void answer(const struct backend_op *ops, size_t count)
{
    struct command_op command_ops[COMMAND_KEYS_MAX];
    char host[LB_HOST_BYTES_MAX + 1];
    struct resp *reply;
    char text[64];
    size_t length;
    char *bytes;

    for (size_t i = 0; i < count; i++)
        command_ops[i] = (struct command_op){&ops[i], "lockbroker:lock:jobs/0000", 25};
    must(command_format(&bench.maker, &bench.server, command_ops, count, false, &bytes, &length) ==
         0);
    command_free(bytes, length);
    if (ops[0].kind == BACKEND_ACQUIRE)
        (void)snprintf(text, sizeof(text), "$16\r\n%" PRId64 "\r\n", ++bench.fence);
    else
        (void)strcpy(text, ops[0].kind == BACKEND_RENEW ? ":1700000000000\r\n" : ":1\r\n");
    reply = reply_read(text);
    for (size_t i = 0; i < count; i++) {
        struct event event = {.kind = EVENT_BACKEND_OUTCOME,
                              .outcome = {.op_id = ops[i].op_id,
                                          .sent_ms = bench.now_ms,
                                          .server_ms = LB_NONE,
                                          .fence = LB_NONE,
                                          .ends_in_ms = LB_NONE}};

        must(command_read(&bench.maker, &ops[i], reply, i, count, host, &event.outcome) == 0);
        step(&event);
    }
    resp_free(reply);
}

static void take_replies(void)
{
    static struct backend_op ops[LOCKS];
    size_t count = bench.pending_count;

    memcpy(ops, bench.pending, count * sizeof(*ops));
    bench.pending_count = 0;
    for (size_t i = 0; i < count;) {
        size_t batch = 1;

        while (ops[i].kind == BACKEND_RENEW && i + batch < count && batch < COMMAND_KEYS_MAX)
            batch++;
        answer(&ops[i], batch);
        i += batch;
    }
}

static void acquire(int lock)
{
    take_line(bench.acquires[lock]);
    take_replies();
}

static void release(int lock)
{
    take_line(bench.releases[lock]);
    take_replies();
}

// Each is called from outside this file's sight, so that it is there to be counted by its name.
__attribute__((noinline)) void path_acquire(int lock);
__attribute__((noinline)) void path_release(int lock);
__attribute__((noinline)) void path_renew(void);
__attribute__((noinline)) void path_parse(const char *line, size_t length);
__attribute__((noinline)) void path_write(const struct reply *reply);

void path_acquire(int lock)
{
    acquire(lock);
}

void path_release(int lock)
{
    release(lock);
}

// All are due at once, and go out at the broker's pace.
void path_renew(void)
{
    struct event event = {.kind = EVENT_TIME};
    int64_t due_ms = bench.now_ms;

    while (due_ms <= bench.now_ms + 1) {
        bench.now_ms = due_ms > bench.now_ms ? due_ms : bench.now_ms;
        step(&event);
        take_replies();
        due_ms = broker_next_deadline(bench.broker);
    }
}

void path_parse(const char *line, size_t length)
{
    struct reply refusal;

    must(request_parse(line, length, &bench.request, &refusal) == 0);
}

void path_write(const struct reply *reply)
{
    must(reply_write(&bench.out, reply) == 0);
    buf_consume(&bench.out, buf_length(&bench.out));
}

static void lines_make(void)
{
    for (int i = 0; i < LOCKS; i++) {
        (void)snprintf(bench.acquires[i], sizeof(bench.acquires[i]), ACQUIRE_LINE, i);
        (void)snprintf(bench.releases[i], sizeof(bench.releases[i]), RELEASE_LINE, i);
    }
}

static void open_all(void)
{
    const struct broker_config config = {
        .ttl_max_ms = TTL_MS,
        .max_wait_ms = 3600000,
        .retry_max_ms = 1000,
        .requests_max = 16384,
        .fence_block = 256,
        .handoff_grants_max = 16,
        .handoff_time_max_ms = 100,
        .server = "lockbrokerd",
        .instance = "1",
        .host = "host",
        .backend_kind = "redis",
    };
    struct event up = {.kind = EVENT_BACKEND_UP,
                       .facts = {.run_id = "1",
                                 .role = "master",
                                 .version = "7.0.15",
                                 .policy = "noeviction",
                                 .server_ms = 1700000000000,
                                 .asked_ms = 1000}};
    struct event opened = {.kind = EVENT_SESSION_OPENED, .session = 1};

    lines_make();
    bench.now_ms = 1000;
    bench.fence = 1700000000000000;
    must(broker_new(&config, 1, &bench.broker) == 0);
    must(token_maker_init(&bench.maker, "host", "0123456789abcdef0123456789abcdef") == 0);
    must(resp_reader_init(&bench.reader) == 0);
    buf_init(&bench.out, LB_REPLY_LINE_BYTES_MAX);
    step(&up);
    step(&opened);
}

static void run_renewals(void)
{
    for (int i = 0; i < LOCKS; i++)
        acquire(i);
    bench.now_ms += TTL_MS / 3;
    path_renew();
}

static void run_cycles(const char *name)
{
    for (int i = 0; i < LOCKS; i++) {
        bench.now_ms++;
        if (strcmp(name, "acquire") == 0) {
            path_acquire(i);
            release(i);
        } else {
            acquire(i);
            path_release(i);
        }
    }
}

static void run_lines(const char *name)
{
    struct reply reply;
    const char *line = bench.acquires[7];

    reply_init(&reply);
    reply.id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = 1};
    reply.op = OP_ACQUIRE;
    reply.key = "jobs/0007";
    reply.fence = bench.fence;
    reply.ttl_ms = TTL_MS;
    reply.valid_ms = 29197;
    reply.deadline_ms = 86400000;
    reply.waited_ms = 0;
    for (int i = 0; i < LOCKS; i++) {
        if (strcmp(name, "parse") == 0)
            path_parse(line, strlen(line));
        else
            path_write(&reply);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"acquire", "release", "renew", "parse", "write"};
    size_t which = 0;

    while (argc == 2 && which < LB_ARRAY_LENGTH(names) && strcmp(argv[1], names[which]) != 0)
        which++;
    if (argc != 2 || which == LB_ARRAY_LENGTH(names)) {
        (void)fprintf(stderr, "Usage: bench_paths acquire | release | renew | parse | write\n");
        return 64;
    }
    open_all();
    if (which < 2)
        run_cycles(names[which]);
    else if (which == 2)
        run_renewals();
    else
        run_lines(names[which]);
    broker_free(bench.broker);
    resp_reader_deinit(&bench.reader);
    buf_clear(&bench.out);
    return 0;
}
