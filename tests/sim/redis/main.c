// Thousands of operations by chance on a real redis-server and on the simulated one: the broker's
// scripts as the broker sends them, what strangers do, plain commands, wrong ones, and times in
// which the server refuses. The first answer that differs ends it.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/redis/command.h"
#include "daemon/redis/script.h"
#include "tests/sim/redis/pair.h"
#include "tests/sim/server_inside.h"

#define OPERATIONS 4000
#define MAKERS     2
#define SERIALS    3
#define KEYS       4
#define HOUR_MS    3600000
#define SETTLE_MS  20
#define RENEWALS   3
#define STATUSES   8
#define UPTIME_S   3

static const char *const keys[KEYS] = {"lock:a", "lock:b", "lock:c", "lock:d"};

// How many of its statuses a script must have answered in the end.
static const int statuses_wanted[SCRIPT_COUNT] = {
    [BACKEND_ACQUIRE] = 5, [BACKEND_RENEW] = 7, [BACKEND_RELEASE] = 4,
    [BACKEND_QUERY] = 3,   [BACKEND_BREAK] = 4,
};

// What a server that refuses is made with, and made good again.
static const struct {
    enum refusing refusing;
    const char *begin;
    const char *end;
} refusals[] = {
    {REFUSING_OOM, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
    {REFUSING_READONLY, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
    {REFUSING_NOPERM, "ACL SETUSER default -eval -evalsha", "ACL SETUSER default +eval +evalsha"},
};

struct state {
    struct pair pair;
    struct rng rng;
    struct token_maker makers[MAKERS];
    int refusal; // index, -1: none
    bool is_marker_lost;
    uint64_t seen[SCRIPT_COUNT][STATUSES];
};

static int64_t below(struct state *state, int64_t bound)
{
    return (int64_t)rng_below(&state->rng, (uint64_t)bound);
}

static const char *some_key(struct state *state)
{
    return keys[below(state, KEYS)];
}

// What was about to expire has expired afterwards, on both.
static void settle(void)
{
    struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000};

    (void)nanosleep(&pause, NULL);
}

static struct backend_op op_draw(struct state *state, enum backend_op_kind kind)
{
    static const int64_t ttls_ms[] = {60000, 90000, 600000};
    int64_t now_ms = pair_now_ms(&state->pair);
    struct backend_op op = {
        .kind = kind,
        .serial = 1 + (uint64_t)below(state, SERIALS),
        .ttl_ms = below(state, 20) ? ttls_ms[below(state, 3)] : 1 + below(state, 3),
        .not_after_ms = below(state, 3) ? now_ms + HOUR_MS : LB_NONE,
        .saw_epoch = below(state, 2),
        .wants_time = below(state, 2),
    };

    if (below(state, 10) == 0)
        op.not_after_ms = now_ms - HOUR_MS;
    if (kind == BACKEND_ACQUIRE) {
        op.fences = below(state, 2) ? 16 : 1;
        op.queue_ms = below(state, 2) ? 60000 : 0;
        op.barges = below(state, 2);
    }
    if (below(state, 2))
        op.loss_ttl_ms = below(state, 12) ? 1 : HOUR_MS;
    if (below(state, 4) == 0)
        op.fence_floor =
            below(state, 2) ? now_ms * 1000 - HOUR_MS : 8000000000000000 + below(state, 5);
    return op;
}

// By its text, since the two servers name a script differently.
static void ops_send(struct state *state, const struct backend_op *ops, size_t count,
                     const char *const *names)
{
    struct command_op command_ops[RENEWALS];
    static const struct command_server server;
    const struct token_maker *maker = &state->makers[below(state, MAKERS)];
    char *bytes;
    size_t length;

    for (size_t i = 0; i < count; i++)
        command_ops[i] = (struct command_op){&ops[i], names[i], strlen(names[i])};
    lb_assert(command_format(maker, &server, command_ops, count, true, &bytes, &length) == 0);
    if (ops[0].kind == BACKEND_ACQUIRE)
        pair_acquire(&state->pair, bytes, length, ops[0].fence_floor);
    else
        pair_send(&state->pair, bytes, length, true);
    command_free(bytes, length);
}

static void operate(struct state *state)
{
    enum backend_op_kind kind = (enum backend_op_kind)below(state, SCRIPT_COUNT);
    size_t count = kind == BACKEND_RENEW ? 1 + (size_t)below(state, RENEWALS) : 1;
    struct backend_op ops[RENEWALS];
    const char *names[RENEWALS];
    bool must_settle = state->is_marker_lost;

    for (size_t i = 0; i < count; i++) {
        ops[i] = op_draw(state, kind);
        names[i] = some_key(state);
        must_settle |= ops[i].ttl_ms < 60000;
    }
    ops_send(state, ops, count, names);
    if (state->pair.status >= 0)
        state->seen[kind][state->pair.status]++;
    if (must_settle)
        settle();
    if (ops[0].loss_ttl_ms)
        state->is_marker_lost = false;
}

static void run(struct state *state, const char *line)
{
    const char *words[16];
    size_t count = 0;
    char copy[256];
    char *rest = copy;

    (void)snprintf(copy, sizeof(copy), "%s", line);
    while ((words[count] = strsep(&rest, " ")))
        count++;
    pair_run(&state->pair, words, count);
}

static void say(struct state *state, const char *format, ...) LB_PRINTF(2, 3);

static void say(struct state *state, const char *format, ...)
{
    char line[256];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    run(state, line);
}

// Plain commands that are wrong, or change nothing.
static const char *const others[] = {
    "PING",
    "GET",
    "get lock:a",
    "NOSUCH x",
    "SET lock:a",
    "SET lock:a x PX",
    "SET lock:a x PX 0",
    "SET lock:a x PX x",
    "SET lock:a x EX",
    "PEXPIRE lock:a x",
    "PEXPIRE lock:none 5",
    "PEXPIRE lock:a 60000 XY",
    "PTTL lock:none",
    "TYPE lock:none",
    "SELECT 7",
    "SELECT x",
    "SELECT 1",
    "EVALSHA 0123456789012345678901234567890123456789 0",
    "EVALSHA x 0",
    "EVAL x",
    "EVAL x y",
    "EVAL x 2 1",
    "EVAL x -1",
    "AUTH wrong",
    "AUTH default secret",
    "CLIENT SETNAME x",
    "MGET lock:a lock:b lock:none lock:c",
    "SCRIPT LOAD return",
    "SCRIPT LOAD x(",
    "DEL lock:none lock:none",
};

static void command_run(struct state *state)
{
    switch (below(state, 8)) {
    case 0:
        say(state, "SET %s stranger PX %d", some_key(state), 60000 + (int)below(state, HOUR_MS));
        break;
    case 1:
        say(state, "SET %s lb1:n%d:%s:%d", some_key(state), (int)below(state, 3), "ab",
            (int)below(state, 3));
        break;
    case 2:
        say(state, "DEL %s %s", some_key(state), some_key(state));
        break;
    case 3:
        say(state, "PEXPIRE %s %d", some_key(state), 50000 + (int)below(state, 100000));
        break;
    case 4:
        say(state, "PEXPIRE %s %d gt", some_key(state), 50000 * (1 + (int)below(state, 20)));
        break;
    case 5:
        say(state, "PEXPIRE %s %d", some_key(state), -(int)below(state, 5));
        break;
    case 6:
        pair_compare_key(&state->pair, some_key(state));
        break;
    default:
        run(state, others[below(state, LB_ARRAY_LENGTH(others))]);
        break;
    }
}

// Scripts that are not the broker's: how values and errors cross the line.
static void script_run(struct state *state)
{
    static const char *const scripts[] = {
        "return {1.9, -1.9, 'x', true, false, 3, nil, 4}",
        "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}",
        "return redis.call('TYPE', KEYS[1])",
        "return redis.pcall('GET', KEYS[1])",
        "return redis.call('MGET', KEYS[1], 'lock:none')",
        "return redis.call('SET', KEYS[1], 1.5)",
        "return redis.call('SET', KEYS[1], 12345678901234)",
        "return redis.pcall('SET', KEYS[1])",
        "return redis.call('PEXPIRE', KEYS[1], 'x')",
        "return redis.call('NOSUCH')",
        "return redis.pcall('PEXPIRE', KEYS[1], 60000, 'QT')",
        "return redis.error_reply('MINE a text')",
        "return redis.error_reply('-MINE a text')",
        "return redis.status_reply('FINE')",
        "return {ok = 'FINE'}",
        "return {err = 'MINE a text'}",
        "return {{1, {2}}, {}, 'end'}",
        "return nosuch",
        "nosuch = 1",
        "error('boom')",
        "error({err = 'MINE a text'})",
        "return redis.call()",
        "return redis.pcall({})",
        "return #ARGV + #KEYS",
        "local a = redis.call('TIME') local b = redis.call('TIME') return a[1] == b[1] and 1 or 1",
        "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], 'x')",
        ("redis.call('PEXPIRE', KEYS[1], 70000) return redis.pcall('SET', KEYS[1], 'x', 'PX', "
         "80000)"),
        "return pcall(redis.call, 'SET', KEYS[1], 'y')",
        "return string.format('%.0f', 9007199254740991)",
        "return tostring(redis.replicate_commands())",
    };
    const char *words[] = {
        "EVAL", scripts[below(state, LB_ARRAY_LENGTH(scripts))], "1", some_key(state), "first", ""};

    pair_run(&state->pair, words, LB_ARRAY_LENGTH(words));
}

// What has no command in the simulated server, but a function.
static void stranger_act(struct state *state)
{
    const char *key = some_key(state), *other = some_key(state);
    struct server *server = state->pair.server;
    char line[128];

    if (state->refusal >= 0)
        return;
    (void)pair_now_ms(&state->pair);
    switch (below(state, 6)) {
    case 0:
        (void)snprintf(line, sizeof(line), "DEL %s", key);
        pair_run_real(&state->pair, line);
        (void)snprintf(line, sizeof(line), "LPUSH %s x", key);
        pair_run_real(&state->pair, line);
        (void)server_delete(server, key);
        (void)server_make_list(server, key);
        break;
    case 1:
        (void)snprintf(line, sizeof(line), "PERSIST %s", key);
        pair_run_real(&state->pair, line);
        (void)server_persist(server, key);
        break;
    case 2:
        if (!server_rename(server, key, other))
            break;
        (void)snprintf(line, sizeof(line), "RENAME %s %s", key, other);
        pair_run_real(&state->pair, line);
        break;
    case 3:
        (void)snprintf(line, sizeof(line), "PEXPIRE %s 70000", key);
        pair_run_real(&state->pair, line);
        (void)server_expire(server, key, 70000);
        break;
    case 4:
        pair_run_real(&state->pair, "SCRIPT FLUSH");
        server_flush_scripts(server);
        break;
    default:
        if (below(state, 8))
            break;
        pair_run_real(&state->pair, "FLUSHALL");
        server_flush_all(server);
        state->is_marker_lost = true;
        break;
    }
}

static void meta_act(struct state *state)
{
    static const char *const lines[] = {
        "DEL lockbroker:meta:fence",         "SET lockbroker:meta:fence rubbish",
        "SET lockbroker:meta:fence nan",     "SET lockbroker:meta:fence 9007199254740990",
        "SET lockbroker:meta:epoch rubbish", "DEL lockbroker:meta:epoch",
        "GET lockbroker:meta:epoch",         "PTTL lockbroker:meta:epoch",
        "GET lockbroker:meta:fence",         "PUBLISH lockbroker:meta:wake:x hello",
        "PUBLISH lockbroker:meta:wake:x",
    };
    size_t which = (size_t)below(state, LB_ARRAY_LENGTH(lines));

    run(state, lines[which]);
    state->is_marker_lost |= which == 4 || which == 5;
}

static void refusal_change(struct state *state)
{
    if (state->refusal >= 0) {
        pair_run_real(&state->pair, refusals[state->refusal].end);
        state->refusal = -1;
    } else if (below(state, 4) == 0) {
        state->refusal = (int)below(state, LB_ARRAY_LENGTH(refusals));
        pair_run_real(&state->pair, refusals[state->refusal].begin);
    }
}

// An operation may take it back, so it is set before each.
static void refuse(struct state *state)
{
    server_refuse(state->pair.server,
                  state->refusal >= 0 ? refusals[state->refusal].refusing : REFUSING_NOTHING,
                  INT64_MAX / 2);
}

static void step(struct state *state)
{
    int64_t lot = below(state, 100);

    refuse(state);
    if (lot < 60)
        operate(state);
    else if (lot < 75)
        command_run(state);
    else if (lot < 85)
        script_run(state);
    else if (lot < 92)
        stranger_act(state);
    else if (lot < 95)
        meta_act(state);
    else
        refusal_change(state);
}

static void begin(struct state *state, uint64_t seed)
{
    static const char *const instances[MAKERS] = {"00000000000000000000000000000abc",
                                                  "00000000000000000000000000000def"};

    rng_init(&state->rng, seed);
    state->refusal = -1;
    state->is_marker_lost = true;
    pair_start(&state->pair, seed);
    for (int i = 0; i < MAKERS; i++)
        lb_assert(token_maker_init(&state->makers[i], "host", instances[i]) == 0);
    while (server_wall_ms(state->pair.server) - state->pair.server->started_ms < UPTIME_S * 1000) {
        settle();
        (void)pair_now_ms(&state->pair);
    }
}

static bool all_seen(const struct state *state)
{
    bool is_well = true;

    for (int kind = 0; kind < SCRIPT_COUNT; kind++) {
        int count = 0;

        for (int status = 0; status < STATUSES; status++)
            count += state->seen[kind][status] > 0;
        if (count < statuses_wanted[kind])
            (void)fprintf(stderr, "%s: %d statuses\n", script_label((enum backend_op_kind)kind),
                          count);
        is_well = is_well && count >= statuses_wanted[kind];
    }
    return is_well;
}

int main(int argc, char **argv)
{
    static struct state state;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;

    begin(&state, seed);
    for (int i = 0; i < OPERATIONS; i++)
        step(&state);
    refusal_change(&state);
    for (int i = 0; i < KEYS; i++)
        pair_compare_key(&state.pair, keys[i]);
    (void)printf("sim.redis: seed %" PRIu64 ": %" PRIu64 " questions, the same answers\n", seed,
                 state.pair.asked);
    pair_stop(&state.pair);
    return all_seen(&state) && state.pair.changes > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
