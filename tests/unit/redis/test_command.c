// Operations as command bytes, and replies as outcomes.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "tests/unit/redis/suites.h"

#define SHA "0123456789012345678901234567890123456789"

static struct token_maker maker;
static struct script_names names;

static void setup(void)
{
    ck_assert_int_eq(token_maker_init(&maker, "h", "ab"), 0);
    for (size_t i = 0; i < SCRIPT_COUNT; i++)
        memcpy(names.sha[i], SHA, sizeof(SHA));
}

static void formats_as(const struct command_op *ops, size_t count, const char *text)
{
    char *bytes;
    size_t length;

    ck_assert_int_eq(command_format(&maker, &names, ops, count, false, &bytes, &length), 0);
    ck_assert_uint_eq(length, strlen(text));
    ck_assert_int_eq(memcmp(bytes, text, length), 0);
    command_free(bytes, length);
}

START_TEST(test_format_acquire)
{
    struct backend_op op = {
        .kind = BACKEND_ACQUIRE, .serial = 5, .ttl_ms = 3000, .fence_floor = 9007199254740990};
    struct command_op one = {&op, "p:a\r\nb", 6};

    formats_as(&one, 1,
               "*8\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n2\r\n$6\r\np:a\r\nb\r\n"
               "$21\r\nlockbroker:meta:fence\r\n$10\r\nlb1:h:ab:5\r\n$4\r\n3000\r\n"
               "$16\r\n9007199254740990\r\n");
}
END_TEST

START_TEST(test_format_renew)
{
    struct backend_op a = {.kind = BACKEND_RENEW, .serial = 1, .ttl_ms = 3000};
    struct backend_op b = {.kind = BACKEND_RENEW, .serial = 2, .ttl_ms = 40000};
    struct command_op ops[] = {{&a, "ka", 2}, {&b, "kb", 2}};

    formats_as(ops, 2,
               "*9\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n2\r\n$2\r\nka\r\n$2\r\nkb\r\n"
               "$10\r\nlb1:h:ab:1\r\n$10\r\nlb1:h:ab:2\r\n$4\r\n3000\r\n$5\r\n40000\r\n");
}
END_TEST

START_TEST(test_format_others)
{
    struct backend_op op = {.kind = BACKEND_RELEASE, .serial = 1};
    struct command_op one = {&op, "k", 1};

    formats_as(&one, 1,
               "*5\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n1\r\n$1\r\nk\r\n"
               "$10\r\nlb1:h:ab:1\r\n");
    op.kind = BACKEND_QUERY;
    formats_as(&one, 1, "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n1\r\n$1\r\nk\r\n");
}
END_TEST

START_TEST(test_format_text)
{
    struct backend_op op = {.kind = BACKEND_BREAK};
    struct command_op one = {&op, "k", 1};
    size_t length;
    char *bytes;

    ck_assert_int_eq(command_format(&maker, &names, &one, 1, true, &bytes, &length), 0);
    ck_assert_int_eq(strncmp(bytes, "*4\r\n$4\r\nEVAL\r\n$", 14), 0);
    ck_assert_ptr_nonnull(strstr(bytes, script_text(BACKEND_BREAK)));
    command_free(bytes, length);
}
END_TEST

START_TEST(test_format_largest_batch)
{
    static struct backend_op renewals[COMMAND_KEYS_MAX];
    static struct command_op ops[COMMAND_KEYS_MAX];
    size_t length;
    char *bytes;

    for (size_t i = 0; i < COMMAND_KEYS_MAX; i++) {
        renewals[i] =
            (struct backend_op){.kind = BACKEND_RENEW, .serial = UINT64_MAX, .ttl_ms = INT64_MAX};
        ops[i] = (struct command_op){&renewals[i], "key", 3};
    }
    ck_assert_int_eq(command_format(&maker, &names, ops, COMMAND_KEYS_MAX, false, &bytes, &length),
                     0);
    ck_assert_int_eq(strncmp(bytes, "*303\r\n", 6), 0);
    command_free(bytes, length);
}
END_TEST

// Parses the bytes as one reply and reads it as the reply to the operation.
static int read_reply(enum backend_op_kind kind, const char *bytes, size_t index, size_t count,
                      struct backend_outcome *ret_outcome)
{
    static char host[LB_HOST_BYTES_MAX + 1];
    struct backend_op op = {.kind = kind, .fence_floor = 50};
    struct resp_reader reader;
    struct resp *reply;
    int rc;

    *ret_outcome = (struct backend_outcome){.result = RESULT_UNKNOWN};
    ck_assert_int_eq(resp_reader_init(&reader), 0);
    ck_assert_int_eq(resp_reader_feed(&reader, bytes, strlen(bytes)), 0);
    ck_assert_int_eq(resp_reader_next(&reader, &reply), RESP_E_REPLY);
    rc = command_read(&maker, &op, reply, index, count, host, ret_outcome);
    resp_free(reply);
    resp_reader_deinit(&reader);
    return rc;
}

START_TEST(test_read_acquire)
{
    struct backend_outcome outcome;

    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "*2\r\n:1\r\n:51\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.fence, 51);
    ck_assert_int_eq(
        read_reply(BACKEND_ACQUIRE, "*3\r\n:0\r\n:-1\r\n$9\r\nlb1:x:a:1\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_BUSY);
    ck_assert_int_eq(outcome.holder.kind, HOLDER_BROKER);
    ck_assert_str_eq(outcome.holder.host, "x");
    ck_assert(outcome.holder.without_expiry);
    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "*1\r\n:3\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_CONFLICT);
}
END_TEST

START_TEST(test_read_statuses)
{
    struct backend_outcome outcome;
    const char *bytes = "*4\r\n:1\r\n:0\r\n:2\r\n:3\r\n";
    static const enum backend_result results[] = {RESULT_OK, RESULT_GONE, RESULT_STOLEN,
                                                  RESULT_CONFLICT};

    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(read_reply(BACKEND_RENEW, bytes, i, 4, &outcome), 0);
        ck_assert_int_eq(outcome.result, results[i]);
    }
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, ":1\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, ":2\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_STOLEN);
}
END_TEST

START_TEST(test_read_misfits)
{
    static const struct {
        enum backend_op_kind kind;
        const char *bytes;
    } cases[] = {
        {BACKEND_ACQUIRE, "+OK\r\n"},
        {BACKEND_ACQUIRE, ":1\r\n"},
        {BACKEND_ACQUIRE, "$-1\r\n"},
        {BACKEND_ACQUIRE, "*0\r\n"},
        {BACKEND_ACQUIRE, "*1\r\n:1\r\n"},
        {BACKEND_ACQUIRE, "*2\r\n:1\r\n:50\r\n"},
        {BACKEND_ACQUIRE, "*2\r\n:1\r\n:-1\r\n"},
        {BACKEND_ACQUIRE, "*2\r\n:1\r\n:9007199254740992\r\n"},
        {BACKEND_ACQUIRE, "*2\r\n:1\r\n$2\r\n51\r\n"},
        {BACKEND_ACQUIRE, "*3\r\n:1\r\n:51\r\n:1\r\n"},
        {BACKEND_ACQUIRE, "*3\r\n:0\r\n:-2\r\n$1\r\nx\r\n"},
        {BACKEND_ACQUIRE, "*3\r\n:0\r\n:5\r\n:5\r\n"},
        {BACKEND_ACQUIRE, "*2\r\n:0\r\n:5\r\n"},
        {BACKEND_ACQUIRE, "*1\r\n:4\r\n"},
        {BACKEND_ACQUIRE, "*1\r\n:-1\r\n"},
        {BACKEND_RENEW, ":1\r\n"},
        {BACKEND_RENEW, "*0\r\n"},
        {BACKEND_RENEW, "*2\r\n:1\r\n:1\r\n"},
        {BACKEND_RENEW, "*1\r\n:4\r\n"},
        {BACKEND_RENEW, "*1\r\n$1\r\n1\r\n"},
        {BACKEND_RENEW, "*1\r\n*1\r\n:1\r\n"},
        {BACKEND_RELEASE, ":4\r\n"},
        {BACKEND_RELEASE, ":-1\r\n"},
        {BACKEND_RELEASE, "+1\r\n"},
        {BACKEND_RELEASE, "*1\r\n:1\r\n"},
        {BACKEND_QUERY, "*1\r\n:1\r\n"},
        {BACKEND_QUERY, "*1\r\n:2\r\n"},
        {BACKEND_BREAK, "*3\r\n:1\r\n$1\r\n1\r\n$1\r\nx\r\n"},
        {BACKEND_BREAK, ":0\r\n"},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        struct backend_outcome outcome;

        ck_assert_msg(read_reply(cases[i].kind, cases[i].bytes, 0, 1, &outcome) == -EPROTO,
                      "case %zu: %s", i, cases[i].bytes);
    }
}
END_TEST

Suite *command_suite(void)
{
    Suite *suite = suite_create("redis/command");
    TCase *tcase = tcase_create("pure");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_format_acquire);
    tcase_add_test(tcase, test_format_renew);
    tcase_add_test(tcase, test_format_others);
    tcase_add_test(tcase, test_format_text);
    tcase_add_test(tcase, test_format_largest_batch);
    tcase_add_test(tcase, test_read_acquire);
    tcase_add_test(tcase, test_read_statuses);
    tcase_add_test(tcase, test_read_misfits);
    suite_add_tcase(suite, tcase);
    return suite;
}
