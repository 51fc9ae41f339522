// The opening of a connection, fed with replies.
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "daemon/redis/handshake.h"
#include "daemon/redis/refusal.h"
#include "tests/unit/redis/suites.h"

#define SHA_REPLY    "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n"
#define TIME         "*2\r\n$10\r\n1700000000\r\n$6\r\n123999\r\n"
#define SHAS         SHA_REPLY SHA_REPLY SHA_REPLY SHA_REPLY SHA_REPLY
#define INFO_SERVER  "$44\r\n# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n"
#define INFO_MASTER  "$28\r\n# Replication\r\nrole:master\r\n\r\n"
#define INFO_REPLICA "$27\r\n# Replication\r\nrole:slave\r\n\r\n"

static struct handshake handshake;

static void begin(const char *user, const char *password, int database)
{
    struct handshake_options options = {user, password, database, "host.name", NULL, NULL, 1000};

    handshake_init(&handshake, &options);
}

// Feeds replies until one of them decides; returns that decision, 0 when none did.
static int take(const char *bytes)
{
    struct resp_reader reader;
    struct resp *reply;
    int rc = 0;

    ck_assert_int_eq(resp_reader_init(&reader), 0);
    ck_assert_int_eq(resp_reader_feed(&reader, bytes, strlen(bytes)), 0);
    while (rc == 0 && resp_reader_next(&reader, &reply) == RESP_E_REPLY) {
        rc = handshake_take(&handshake, reply);
        resp_free(reply);
    }
    resp_reader_deinit(&reader);
    return rc;
}

static int take_memory(const char *info)
{
    char bytes[512];

    begin(NULL, NULL, 0);
    (void)snprintf(bytes, sizeof(bytes),
                   "+OK\r\n" INFO_SERVER INFO_MASTER "$%zu\r\n%s\r\n" TIME SHAS, strlen(info),
                   info);
    return take(bytes);
}

static void step_is(size_t index, const char *text)
{
    size_t length;
    char *bytes;

    ck_assert_uint_lt(index, handshake.steps_count);
    ck_assert_int_eq(handshake_format(&handshake, index, &bytes, &length), 0);
    ck_assert_msg(strncmp(bytes, text, strlen(text)) == 0, "%s", bytes);
    command_free(bytes, length);
}

START_TEST(test_steps)
{
    begin("me", "secret", 5);
    step_is(0, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n");
    step_is(1, "*2\r\n$6\r\nSELECT\r\n$1\r\n5\r\n");
    step_is(2, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$21\r\nlockbrokerd-host.name\r\n");
    step_is(3, "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n");
    step_is(4, "*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n");
    step_is(5, "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n");
    step_is(6, "*1\r\n$4\r\nTIME\r\n");
    step_is(7, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n");
    ck_assert_uint_eq(handshake.steps_count, 7 + SCRIPT_COUNT);
    begin(NULL, "secret", 0);
    step_is(0, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
    step_is(1, "*3\r\n$6\r\nCLIENT\r\n");
    begin(NULL, NULL, 0);
    step_is(0, "*3\r\n$6\r\nCLIENT\r\n");
}
END_TEST

START_TEST(test_facts)
{
    struct backend_facts facts;

    ck_assert_int_eq(take_memory("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n"),
                     HANDSHAKE_E_DONE);
    handshake_facts(&handshake, &facts);
    ck_assert_str_eq(facts.role, "master");
    ck_assert_str_eq(facts.version, "7.0.15");
    ck_assert_str_eq(facts.policy, "allkeys-lru");
    ck_assert(facts.may_evict);
    ck_assert_str_eq(facts.run_id, "abc");
    ck_assert_int_eq(facts.server_ms, 1700000000123);
    ck_assert_int_eq(facts.asked_ms, 1000);
    ck_assert_str_eq(handshake.scripts.sha[BACKEND_BREAK],
                     "0123456789abcdef0123456789abcdef01234567");
}
END_TEST

START_TEST(test_eviction)
{
    static const struct {
        const char *info;
        bool may_evict;
    } cases[] = {
        {"maxmemory:1000\r\nmaxmemory_policy:noeviction\r\n", false},
        {"maxmemory:1000\r\nmaxmemory_policy:volatile-ttl\r\n", true},
        {"maxmemory:1000\r\nmaxmemory_policy:volatile-lru", true},
        {"maxmemory:0\r\nmaxmemory_policy:noeviction\r\n", false},
        {"maxmemory:0\r\nmaxmemory_policy:allkeys-lfu\r\n", true},
        {"maxmemory_policy:volatile-random\r\n", true},
        {"maxmemory:1000\r\n", false},
        {"", false},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        struct backend_facts facts;

        ck_assert_int_eq(take_memory(cases[i].info), HANDSHAKE_E_DONE);
        handshake_facts(&handshake, &facts);
        ck_assert_msg(facts.may_evict == cases[i].may_evict, "%s", cases[i].info);
    }
}
END_TEST

static void refused_with(const char *bytes, const char *problem)
{
    ck_assert_int_eq(take(bytes), HANDSHAKE_E_REFUSED);
    ck_assert_msg(strstr(handshake.problem, problem) != NULL, "%s", handshake.problem);
}

START_TEST(test_auth_refused)
{
    begin("me", "secret", 0);
    refused_with("-WRONGPASS invalid username-password pair secret\r\n", "AUTH: WRONGPASS");
    ck_assert_ptr_null(strstr(handshake.problem, "secret"));
    begin(NULL, "secret", 0);
    refused_with("-ERR AUTH <password> called without any password configured\r\n",
                 "no password set");
    begin(NULL, "secret", 0);
    refused_with("+QUEUED\r\n", "unexpected");
    begin(NULL, NULL, 0);
    refused_with("-NOAUTH Authentication required.\r\n", "NOAUTH");
    ck_assert_str_eq(handshake.hint, refusal_hint("NOAUTH"));
    begin(NULL, NULL, 3);
    refused_with("-ERR DB index is out of range\r\n", "SELECT: ERR DB index");
    ck_assert_ptr_null(handshake.hint);
}
END_TEST

START_TEST(test_server_refused)
{
    begin(NULL, NULL, 0);
    refused_with("-NOPERM no\r\n" INFO_SERVER INFO_REPLICA, "replica");
    ck_assert_ptr_null(handshake.hint); // that of a step that did not matter
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n" INFO_SERVER "$2\r\n\r\n\r\n", "role");
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n" INFO_SERVER "-NOPERM no\r\n", "INFO replication: NOPERM");
    begin(NULL, NULL, 0);
    refused_with("-ERR max number of clients reached\r\n", "max number");
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n" TIME
                 "-LOADING Redis is loading\r\n",
                 "SCRIPT LOAD: LOADING");
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n" TIME "$3\r\nabc\r\n",
                 "SCRIPT LOAD");
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n:1\r\n", "INFO server");
}
END_TEST

START_TEST(test_time_misfits)
{
    static const char *const times[] = {
        "+OK\r\n",
        ":1700000000\r\n",
        "*0\r\n",
        "*1\r\n$1\r\n1\r\n",
        "*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n",
        "*2\r\n:1\r\n:1\r\n",
        "*2\r\n$1\r\n1\r\n:1\r\n",
        "*2\r\n$-1\r\n$1\r\n1\r\n",
        "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
        "*2\r\n$2\r\n-1\r\n$1\r\n1\r\n",
        "*2\r\n$2\r\n1x\r\n$1\r\n1\r\n",
        "*2\r\n$1\r\n1\r\n$7\r\n1000000\r\n",
        "*2\r\n$13\r\n9007199254741\r\n$1\r\n0\r\n",
        "*2\r\n$16\r\n0000000000000001\r\n$1\r\n0\r\n",
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(times); i++) {
        char bytes[256];

        (void)snprintf(bytes, sizeof(bytes), "+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n%s",
                       times[i]);
        begin(NULL, NULL, 0);
        ck_assert_msg(take(bytes) == HANDSHAKE_E_REFUSED, "case %zu", i);
        ck_assert_ptr_nonnull(strstr(handshake.problem, "TIME: an unexpected reply"));
    }
}
END_TEST

START_TEST(test_time_bounds)
{
    struct backend_facts facts;

    begin(NULL, NULL, 0);
    ck_assert_int_eq(take("+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n"), 0);
    handshake_facts(&handshake, &facts);
    ck_assert_int_eq(facts.server_ms, LB_NONE);
    ck_assert_int_eq(take("*2\r\n$13\r\n9007199254740\r\n$6\r\n999999\r\n" SHAS), HANDSHAKE_E_DONE);
    handshake_facts(&handshake, &facts);
    ck_assert_int_eq(facts.server_ms, 9007199254740999);
    begin(NULL, NULL, 0);
    ck_assert_int_eq(
        take("+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n*2\r\n$1\r\n0\r\n$1\r\n0\r\n" SHAS),
        HANDSHAKE_E_DONE);
    handshake_facts(&handshake, &facts);
    ck_assert_int_eq(facts.server_ms, 0);
    begin(NULL, NULL, 0);
    refused_with("+OK\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n-NOPERM no\r\n", "TIME: NOPERM");
}
END_TEST

START_TEST(test_name_is_optional)
{
    begin(NULL, NULL, 0);
    ck_assert_int_eq(take("-NOPERM no\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n" TIME SHAS),
                     HANDSHAKE_E_DONE);
    begin(NULL, NULL, 0);
    ck_assert_int_eq(
        take("-ERR unknown command 'CLIENT'\r\n" INFO_SERVER INFO_MASTER "$0\r\n\r\n" TIME SHAS),
        HANDSHAKE_E_DONE);
}
END_TEST

START_TEST(test_long_values_are_left_out)
{
    char bytes[512], version[101];
    struct backend_facts facts;

    memset(version, '7', 100);
    version[100] = '\0';
    (void)snprintf(bytes, sizeof(bytes), "+OK\r\n$114\r\nredis_version:%s\r\n" INFO_MASTER,
                   version);
    begin(NULL, NULL, 0);
    ck_assert_int_eq(take(bytes), 0);
    handshake_facts(&handshake, &facts);
    ck_assert_ptr_null(facts.version);
    ck_assert_str_eq(facts.role, "master");
}
END_TEST

Suite *handshake_suite(void)
{
    Suite *suite = suite_create("redis/handshake");
    TCase *tcase = tcase_create("pure");

    tcase_add_test(tcase, test_steps);
    tcase_add_test(tcase, test_facts);
    tcase_add_test(tcase, test_eviction);
    tcase_add_test(tcase, test_auth_refused);
    tcase_add_test(tcase, test_server_refused);
    tcase_add_test(tcase, test_time_misfits);
    tcase_add_test(tcase, test_time_bounds);
    tcase_add_test(tcase, test_name_is_optional);
    tcase_add_test(tcase, test_long_values_are_left_out);
    suite_add_tcase(suite, tcase);
    return suite;
}
