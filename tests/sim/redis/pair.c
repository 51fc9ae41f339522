// Compares answers. The simulated server is set to the time at which the real one says that it
// executed, so that the two differ by no more than the real one's own clock moves on inside of one
// script. Names of scripts and run ids differ and are left out.
#include "tests/sim/redis/pair.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "tests/sim/allocation.h"
#include "tests/sim/server_inside.h"

#define TOLERANCE_MS 2000 // the real server may be kept from running in the midst of a script

static _Noreturn void differ(const struct pair *pair, const char *why, const char *real,
                             const char *simulated)
{
    (void)fprintf(stderr, "%" PRIu64 ": %s\n  %s\n  real:      %s\n  simulated: %s\n", pair->asked,
                  why, pair->what, real, simulated);
    exit(1);
}

static void differ_in_number(const struct pair *pair, const char *why, int64_t real,
                             int64_t simulated)
{
    char texts[2][32];

    (void)snprintf(texts[0], sizeof(texts[0]), "%" PRId64, real);
    (void)snprintf(texts[1], sizeof(texts[1]), "%" PRId64, simulated);
    differ(pair, why, texts[0], texts[1]);
}

static void on_write(void *context, const struct server_write *write)
{
    struct pair *pair = context;

    (void)write;
    pair->changes++;
}

static void on_loss(void *context, bool kept)
{
    (void)context, (void)kept;
}

static int64_t info_number(const char *info, const char *name)
{
    const char *at = strstr(info, name);

    lb_assert(at);
    return strtoll(at + strlen(name), NULL, 10);
}

static void time_set(struct pair *pair, int64_t now_ms)
{
    int64_t by_ms;

    pair->sim.now_us += 1000;
    by_ms = now_ms - server_wall_ms(pair->server);
    if (by_ms != 0)
        server_step_clock(pair->server, by_ms);
}

static int64_t real_time_ms(struct pair *pair)
{
    const char *words[] = {"TIME"};
    redisReply *reply = real_run(&pair->real, words, 1);
    int64_t now_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                     strtoll(reply->element[1]->str, NULL, 10) / 1000;

    freeReplyObject(reply);
    return now_ms;
}

int64_t pair_now_ms(struct pair *pair)
{
    int64_t now_ms = real_time_ms(pair);

    time_set(pair, now_ms);
    return now_ms;
}

void pair_start(struct pair *pair, uint64_t seed)
{
    struct server_watcher watcher = {on_write, on_loss, pair};
    const char *words[] = {"INFO", "server"};
    const char *auth[] = {"AUTH", SERVER_PASSWORD}, *select[] = {"SELECT", "1"};
    redisReply *info;

    memset(pair, 0, sizeof(*pair));
    allocation_may_fail(NULL);
    sim_init(&pair->sim, seed);
    real_start(&pair->real, SERVER_PASSWORD);
    pair->server = server_new(&pair->sim, 0, &watcher);
    pair->conn = server_connect(pair->server, 0);
    pair_run(pair, words, 2); // refused, alike
    pair_run(pair, auth, 2);
    pair_run(pair, select, 2);
    info = real_run(&pair->real, words, 2);
    pair->server->started_ms =
        (pair_now_ms(pair) / 1000 - info_number(info->str, "uptime_in_seconds:")) * 1000;
    freeReplyObject(info);
}

void pair_stop(struct pair *pair)
{
    server_conn_free(pair->conn);
    server_free(pair->server);
    sim_deinit(&pair->sim);
    real_stop(&pair->real);
}

// A run id at the front and the name of a script at the end belong to one server.
static bool texts_match(const char *real, const char *simulated)
{
    size_t real_length = strlen(real), length = strlen(simulated);
    const char *real_end = strstr(real, " script: "), *end = strstr(simulated, " script: ");
    char *rest, *real_rest;

    if (!real_end != !end || (end && strcmp(strstr(real_end, ", on "), strstr(end, ", on ")) != 0))
        return false;
    if (end) {
        real_length = (size_t)(real_end - real);
        length = (size_t)(end - simulated);
    }
    if (real_length == length && memcmp(real, simulated, length) == 0)
        return true;
    if (strncmp(real, "NOPERM ", 7) == 0)
        return strncmp(simulated, "NOPERM ", 7) == 0;
    if (strspn(real, "0123456789abcdef") != 40 || strspn(simulated, "0123456789abcdef") != 40)
        return false;
    if (real_length == 40 && length == 40)
        return true;
    return llabs(strtoll(real + 40, &real_rest, 10) - strtoll(simulated + 40, &rest, 10)) <=
               TOLERANCE_MS &&
           strcmp(real_rest, rest) == 0;
}

static enum resp_kind kind_of(const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_INTEGER:
        return RESP_INTEGER;
    case REDIS_REPLY_STATUS:
        return RESP_STATUS;
    case REDIS_REPLY_ERROR:
        return RESP_ERROR;
    case REDIS_REPLY_STRING:
        return RESP_TEXT;
    case REDIS_REPLY_ARRAY:
        return RESP_ARRAY;
    default:
        return RESP_NIL;
    }
}

static void replies_compare(const struct pair *pair, const redisReply *real,
                            const struct resp *simulated)
{
    enum resp_kind kind = kind_of(real);

    if (kind != simulated->kind && real->str && simulated->text)
        differ(pair, "another kind of answer", real->str, simulated->text);
    if (kind != simulated->kind)
        differ_in_number(pair, "another kind of answer", (int)kind, (int)simulated->kind);
    if (simulated->text && !texts_match(real->str, simulated->text))
        differ(pair, "another text", real->str, simulated->text);
    if (kind == RESP_INTEGER && llabs(real->integer - simulated->integer) > TOLERANCE_MS)
        differ_in_number(pair, "another number", real->integer, simulated->integer);
    // What is small is a status or a count, and not a time.
    if (kind == RESP_INTEGER && (real->integer < 10 || simulated->integer < 10) &&
        real->integer != simulated->integer)
        differ_in_number(pair, "another number", real->integer, simulated->integer);
    if (kind != RESP_ARRAY)
        return;
    if (real->elements != simulated->count)
        differ_in_number(pair, "another count", (int64_t)real->elements, (int64_t)simulated->count);
    for (size_t i = 0; i < simulated->count; i++)
        replies_compare(pair, real->element[i], &simulated->items[i]);
}

static void what_set(struct pair *pair, const char *bytes, size_t length)
{
    size_t count = 0;

    pair->asked++;
    for (size_t i = 0; i < length && count + 1 < sizeof(pair->what); i++) {
        if (bytes[i] == '\r')
            continue;
        pair->what[count++] = bytes[i] == '\n' ? ' ' : bytes[i];
    }
    pair->what[count] = '\0';
}

static bool reply_has_time(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER;
}

// The short answers: to an acquire the time in microseconds, to renewals the time in milliseconds,
// to a release a status.
static bool reply_is_clock(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING;
}

static bool reply_is_time(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer > 1000000000000;
}

static int64_t reply_status(const redisReply *reply)
{
    if (reply_is_clock(reply) || reply_is_time(reply))
        return 1;
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer;
    return reply_has_time(reply) && reply->elements > 1 ? reply->element[1]->integer : -1;
}

static int64_t reply_time_ms(const struct pair *pair, const redisReply *reply)
{
    if (reply_is_clock(reply))
        return strtoll(reply->str, NULL, 10) / 1000;
    if (reply_is_time(reply))
        return reply->integer;
    return reply_has_time(reply) ? reply->element[0]->integer : server_wall_ms(pair->server);
}

static redisReply *both_send(struct pair *pair, const char *bytes, size_t length, bool has_time,
                             struct resp **ret_simulated)
{
    redisReply *real;
    size_t consumed;

    what_set(pair, bytes, length);
    real = real_send(&pair->real, bytes, length);
    time_set(pair, has_time ? reply_time_ms(pair, real) : server_wall_ms(pair->server));
    lb_assert(server_execute(pair->conn, bytes, length, &consumed, ret_simulated));
    lb_assert(consumed == length);
    pair->status = has_time ? reply_status(real) : -1;
    return real;
}

void pair_send(struct pair *pair, const char *bytes, size_t length, bool has_time)
{
    struct resp *simulated;
    redisReply *real = both_send(pair, bytes, length, has_time, &simulated);

    replies_compare(pair, real, simulated);
    freeReplyObject(real);
    resp_free(simulated);
}

void pair_run(struct pair *pair, const char *const *words, size_t count)
{
    char *bytes;
    size_t length;
    int rc = command_format_words(words, count, &bytes, &length);

    lb_assert(rc == 0);
    if (pair->conn->is_authenticated)
        (void)pair_now_ms(pair);
    pair_send(pair, bytes, length, false);
    command_free(bytes, length);
}

// Both fences are the time of the call in microseconds, or both follow another number.
static void fences_compare(struct pair *pair, int64_t time_ms, int64_t real, int64_t simulated,
                           int64_t fence_floor)
{
    bool is_time = llabs(real / 1000 - time_ms) <= TOLERANCE_MS;
    bool is_simulated_time = simulated / 1000 == time_ms;

    if (is_time != is_simulated_time || (!is_time && real != simulated))
        differ_in_number(pair, "another fence", real, simulated);
    if (real <= fence_floor || simulated <= fence_floor)
        differ_in_number(pair, "a fence below its floor", real, simulated);
}

// The counters go on from the same number.
static void fence_set(struct pair *pair, int64_t fence)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRId64, fence);
    server_refuse(pair->server, REFUSING_NOTHING, 0);
    (void)server_set(pair->server, COMMAND_FENCE_KEY, text, SERVER_FOREVER);
}

// The two clocks agree to the millisecond; what they answer goes on as if it were the same.
static void clocks_compare(struct pair *pair, const redisReply *real, struct resp *simulated,
                           int64_t fence_floor)
{
    int64_t fence = strtoll(real->str, NULL, 10);

    if (simulated->kind != RESP_TEXT || simulated->length != real->len)
        differ(pair, "another answer than the time", real->str, simulated->text);
    fences_compare(pair, fence / 1000, fence, strtoll(simulated->text, NULL, 10), fence_floor);
    memcpy(simulated->text, real->str, real->len);
    fence_set(pair, fence);
}

void pair_acquire(struct pair *pair, const char *bytes, size_t length, int64_t fence_floor)
{
    struct resp *simulated;
    redisReply *real = both_send(pair, bytes, length, true, &simulated);

    if (reply_is_clock(real)) {
        clocks_compare(pair, real, simulated, fence_floor);
    } else if (reply_has_time(real) && real->elements >= 5 && simulated->count >= 5 &&
               real->element[1]->integer == 1) {
        fences_compare(pair, real->element[0]->integer, real->element[2]->integer,
                       simulated->items[2].integer, fence_floor);
        simulated->items[2].integer = real->element[2]->integer;
        fence_set(pair, real->element[2]->integer + real->element[3]->integer - 1);
    }
    replies_compare(pair, real, simulated);
    freeReplyObject(real);
    resp_free(simulated);
}

void pair_run_real(struct pair *pair, const char *line)
{
    redisReply *reply = redisCommand(pair->real.context, line);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        differ(pair, line, reply ? reply->str : "no answer", "");
    freeReplyObject(reply);
}

void pair_compare_key(struct pair *pair, const char *key)
{
    const char *get[] = {"GET", key}, *pttl[] = {"PTTL", key}, *type[] = {"TYPE", key};

    pair_run(pair, get, 2);
    pair_run(pair, pttl, 2);
    pair_run(pair, type, 2);
}
