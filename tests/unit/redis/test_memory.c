// Memory that runs out at every single place where this folder asks for some. The linker puts the
// functions here before the real ones.
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/redis/channel_rig.h"
#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

#if HIREDIS_MAJOR >= 1
#define FORMAT_RESULT long long
#else
#define FORMAT_RESULT int
#endif

static struct server server;
static struct rig rig;
static struct ear ear;
static long countdown; // 0: never; 1: the next one fails

static bool is_due(void)
{
    return rig_is_inside && countdown > 0 && --countdown == 0;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
FORMAT_RESULT __real_redisFormatCommandArgv(char **target, int argc, const char **argv,
                                            const size_t *lengths);
FORMAT_RESULT __wrap_redisFormatCommandArgv(char **target, int argc, const char **argv,
                                            const size_t *lengths);
int __real_redisReaderFeed(redisReader *reader, const char *bytes, size_t length);
int __wrap_redisReaderFeed(redisReader *reader, const char *bytes, size_t length);
redisReader *__real_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions);
redisReader *__wrap_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions);

void *__wrap_malloc(size_t size)
{
    return is_due() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_due() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return is_due() ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return is_due() ? NULL : __real_strdup(text);
}

FORMAT_RESULT __wrap_redisFormatCommandArgv(char **target, int argc, const char **argv,
                                            const size_t *lengths)
{
    return is_due() ? -1 : __real_redisFormatCommandArgv(target, argc, argv, lengths);
}

int __wrap_redisReaderFeed(redisReader *reader, const char *bytes, size_t length)
{
    return is_due() ? REDIS_ERR : __real_redisReaderFeed(reader, bytes, length);
}

redisReader *__wrap_redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions)
{
    return is_due() ? NULL : __real_redisReaderCreateWithFunctions(functions);
}

static void setup(void)
{
    server_start(&server, true, NULL);
    rig_init(&rig, &server);
}

static void teardown(void)
{
    countdown = 0;
    rig_close(&rig);
    server_stop(&server);
}

START_TEST(test_new)
{
    int failures = 0;
    int rc;

    rig.options.address.user = "user";
    rig.options.address.password = "password";
    do {
        countdown = failures + 1;
        rig_is_inside = true;
        rc = uplink_new(&rig.loop, &rig.options, &rig.uplink);
        rig_is_inside = false;
        ck_assert(rc == 0 || rc == -ENOMEM);
        failures += rc != 0;
    } while (rc != 0);
    ck_assert_int_ge(failures, 6);
}
END_TEST

// Waits for the link, submits, and waits for the end. Every operation has one outcome, whatever it
// is; the rig sees to that.
static void step(enum backend_op_kind kind, int count)
{
    rig_await_up(&rig, 1);
    for (int i = 0; i < count; i++)
        (void)rig_submit(&rig, kind, i % 2 ? "a" : "b", (uint64_t)(1 + i % 2), 60000, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
}

static long life(long fail_at)
{
    long left;

    ck_assert_int_eq(uplink_new(&rig.loop, &rig.options, &rig.uplink), 0);
    uplink_open(rig.uplink);
    countdown = fail_at;
    step(BACKEND_ACQUIRE, 2);
    step(BACKEND_RENEW, 2);
    server_run(&server, "SCRIPT FLUSH");
    step(BACKEND_RENEW, 3);
    step(BACKEND_QUERY, 1);
    step(BACKEND_RELEASE, 2);
    left = countdown;
    countdown = 0;
    rig_await_up(&rig, 1);
    ck_assert_int_eq(rig_acquire(&rig, "last", 3, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_release(&rig, "last", 3)->result, RESULT_OK);
    return left;
}

static int lost_ops(void)
{
    int lost = 0;

    for (uint64_t op = 1; op <= rig.ops_count; op++) {
        enum backend_result result = rig_outcome(&rig, op)->result;

        lost += result == RESULT_NOT_SENT || result == RESULT_UNKNOWN;
    }
    return lost;
}

static void every_allocation(bool with_tcp)
{
    long fail_at = 0, left;

    do {
        rig_close(&rig);
        rig_init(&rig, &server);
        if (with_tcp)
            rig_use_tcp(&rig, "localhost", server.port);
        server_run(&server, "FLUSHALL");
        left = life(++fail_at);
        // One failure costs one command, or the link with what is on it: a step has at most three.
        ck_assert_int_le(lost_ops(), 3);
    } while (left == 0);
    ck_assert_int_gt(fail_at, 60);
}

START_TEST(test_every_allocation)
{
    every_allocation(false);
}
END_TEST

START_TEST(test_every_allocation_by_name)
{
    every_allocation(true);
}
END_TEST

START_TEST(test_new_channel)
{
    int failures = 0;
    int rc;

    ear_init(&ear, &server);
    do {
        countdown = failures + 1;
        rig_is_inside = true;
        rc = channel_new(&ear.loop, &ear.options, &ear.channel);
        rig_is_inside = false;
        ck_assert(rc == 0 || rc == -ENOMEM);
        failures += rc != 0;
    } while (rc != 0);
    ck_assert_int_ge(failures, 5);
    ear_close(&ear);
}
END_TEST

// A failure may cost an attempt, the connection or a hint: what is said later is heard.
static long channel_life(long fail_at)
{
    long left;

    ear.options.quiet_ms = 1; // PINGs, too
    ear_open(&ear);
    countdown = fail_at;
    ear_run(&ear, 30);
    (void)ear_say(&server, "turn lock:a");
    (void)ear_say(&server, "nothing");
    ear_run(&ear, 30);
    left = countdown;
    countdown = 0;
    ear_await_ups(&ear, ear.downs + 1);
    ear_assert_hears(&ear, &server);
    return left;
}

START_TEST(test_every_allocation_of_a_channel)
{
    long fail_at = 0, left;

    do {
        ear_init(&ear, &server);
        if (_i)
            ear_use_tcp(&ear, "localhost", server.port);
        left = channel_life(++fail_at);
        ear_close(&ear);
    } while (left == 0 && fail_at < 100);
    ck_assert_int_gt(fail_at, 20);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *suite = suite_create("redis/memory");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_new);
    tcase_add_test(tcase, test_every_allocation);
    tcase_add_test(tcase, test_every_allocation_by_name);
    tcase_add_test(tcase, test_new_channel);
    tcase_add_loop_test(tcase, test_every_allocation_of_a_channel, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
