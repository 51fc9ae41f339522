// Operations as command bytes, and replies as outcomes.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "tests/unit/redis/suites.h"

#define SHA "0123456789012345678901234567890123456789"

#define META_KEYS "$21\r\nlockbroker:meta:fence\r\n$21\r\nlockbroker:meta:epoch\r\n"
#define ACQUIRE                                                                                    \
    "*14\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n4\r\n$6\r\np:a\r\nb\r\n" META_KEYS            \
    "$28\r\nlockbroker:meta:queue:p:a\r\nb\r\n$10\r\nlb1:h:ab:5\r\n$4\r\n3000\r\n"
#define RENEWALS(words)                                                                            \
    "*" words "\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n4\r\n" META_KEYS                       \
    "$2\r\nka\r\n$2\r\nkb\r\n"
#define TOKENS "$10\r\nlb1:h:ab:1\r\n$10\r\nlb1:h:ab:2\r\n"
#define TTLS   "$4\r\n3000\r\n$5\r\n40000\r\n"

#define QUEUE_ID "$16\r\n" ID "\r\n"
#define FREEING                                                                                    \
    "\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n2\r\n$1\r\nk\r\n"                                \
    "$23\r\nlockbroker:meta:queue:k\r\n"

// Of the instance "ab".
#define ID "da23614e02469a0d"

// The server's time, as each reply begins.
#define NOW ":1700000000123\r\n"

static struct token_maker maker;
static struct command_server server;

static void setup(void)
{
    ck_assert_int_eq(token_maker_init(&maker, "h", "ab"), 0);
    server = (struct command_server){0};
    for (size_t i = 0; i < SCRIPT_COUNT; i++)
        memcpy(server.names.sha[i], SHA, sizeof(SHA));
}

static void formats_as(const struct command_op *ops, size_t count, const char *text)
{
    char *bytes;
    size_t length;

    ck_assert_int_eq(command_format(&maker, &server, ops, count, false, &bytes, &length), 0);
    ck_assert_uint_eq(length, strlen(text));
    ck_assert_int_eq(memcmp(bytes, text, length), 0);
    command_free(bytes, length);
}

START_TEST(test_format_acquire)
{
    struct backend_op op = {.kind = BACKEND_ACQUIRE,
                            .serial = 5,
                            .ttl_ms = 3000,
                            .fence_floor = 9007199254740990,
                            .not_after_ms = LB_NONE};
    struct command_op one = {&op, "p:a\r\nb", 6};

    formats_as(&one, 1,
               ACQUIRE "$0\r\n\r\n$16\r\n9007199254740990\r\n$1\r\n-\r\n$1\r\n1\r\n"
                       "$24\r\n0 0 " ID " 0 0\r\n");
    op.not_after_ms = 1700000000123;
    op.loss_ttl_ms = 30000;
    op.saw_epoch = true;
    op.fences = 256;
    op.queue_ms = 3000;
    op.barges = true;
    formats_as(&one, 1,
               ACQUIRE "$13\r\n1700000000123\r\n$16\r\n9007199254740990\r\n$0\r\n\r\n"
                       "$3\r\n256\r\n$31\r\n30000 1 " ID " 3000 1\r\n");
}
END_TEST

START_TEST(test_format_renew)
{
    struct backend_op a = {
        .kind = BACKEND_RENEW, .serial = 1, .ttl_ms = 3000, .not_after_ms = LB_NONE};
    struct backend_op b = {
        .kind = BACKEND_RENEW, .serial = 2, .ttl_ms = 40000, .not_after_ms = LB_NONE};
    struct command_op ops[] = {{&a, "ka", 2}, {&b, "kb", 2}};

    formats_as(ops, 2,
               RENEWALS("17") "$1\r\n0\r\n$0\r\n\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n-\r\n"
                              "$0\r\n\r\n" TOKENS TTLS);
    b.fences = 7;
    formats_as(ops, 2,
               RENEWALS("19") "$1\r\n0\r\n$0\r\n\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n-\r\n"
                              "$0\r\n\r\n" TOKENS TTLS "$1\r\n0\r\n$1\r\n7\r\n");
    b.ttl_ms = 3000;
    formats_as(ops, 2,
               RENEWALS("17") "$1\r\n0\r\n$0\r\n\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n-\r\n"
                              "$4\r\n3000\r\n" TOKENS "$1\r\n0\r\n$1\r\n7\r\n");
    b.fences = 0;
    formats_as(ops, 2,
               RENEWALS("15") "$1\r\n0\r\n$0\r\n\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n-\r\n"
                              "$4\r\n3000\r\n" TOKENS);
}
END_TEST

// Of what a batch has in common, each gets the strictest that one of them asks for.
START_TEST(test_format_renew_joined)
{
    struct backend_op a = {.kind = BACKEND_RENEW,
                           .serial = 1,
                           .ttl_ms = 3000,
                           .fence_floor = 8,
                           .not_after_ms = LB_NONE,
                           .loss_ttl_ms = 50000};
    struct backend_op b = {.kind = BACKEND_RENEW,
                           .serial = 2,
                           .ttl_ms = 40000,
                           .fence_floor = 9,
                           .not_after_ms = 700,
                           .loss_ttl_ms = 40000,
                           .saw_epoch = true};
    struct command_op ops[] = {{&a, "ka", 2}, {&b, "kb", 2}};
    const char *text = RENEWALS(
        "17") "$1\r\n9\r\n$3\r\n700\r\n$5\r\n50000\r\n$1\r\n1\r\n$0\r\n\r\n$0\r\n\r\n" TOKENS TTLS;

    formats_as(ops, 2, text);
    a.not_after_ms = 701;
    formats_as(ops, 2, text);
    a = (struct backend_op){.kind = BACKEND_RENEW,
                            .serial = 1,
                            .ttl_ms = 3000,
                            .fence_floor = 9,
                            .not_after_ms = 700,
                            .loss_ttl_ms = 50000,
                            .saw_epoch = true};
    b.fence_floor = 0;
    b.not_after_ms = LB_NONE;
    b.saw_epoch = false;
    formats_as(ops, 2, text);
    b.not_after_ms = 800;
    formats_as(ops, 2, text);
    b.not_after_ms = 700;
    a.loss_ttl_ms = 0;
    b.loss_ttl_ms = 50000;
    formats_as(ops, 2, text);
    b.not_after_ms = 600;
    formats_as(
        ops, 2,
        RENEWALS(
            "17") "$1\r\n9\r\n$3\r\n600\r\n$5\r\n50000\r\n$1\r\n1\r\n$0\r\n\r\n$0\r\n\r\n" TOKENS
            TTLS);
}
END_TEST

START_TEST(test_format_others)
{
    struct backend_op op = {.kind = BACKEND_RELEASE, .serial = 1, .not_after_ms = 123};
    struct command_op one = {&op, "k", 1};

    formats_as(&one, 1, "*7" FREEING "$10\r\nlb1:h:ab:1\r\n" QUEUE_ID);
    op.queue_ms = 3000;
    formats_as(&one, 1, "*8" FREEING "$10\r\nlb1:h:ab:1\r\n" QUEUE_ID "$4\r\n3000\r\n");
    op.queue_ms = 0;
    op.wants_time = true;
    formats_as(&one, 1, "*8" FREEING "$10\r\nlb1:h:ab:1\r\n" QUEUE_ID "$1\r\n0\r\n");
    op.kind = BACKEND_QUERY;
    formats_as(&one, 1, "*4\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n1\r\n$1\r\nk\r\n");
    op.kind = BACKEND_BREAK;
    formats_as(&one, 1, "*6" FREEING "$3\r\n123\r\n");
    op.not_after_ms = LB_NONE;
    formats_as(&one, 1, "*6" FREEING "$0\r\n\r\n");
}
END_TEST

// A marker goes out with what waits for no longer locks than those that it was asked about.
START_TEST(test_format_marker)
{
    struct backend_op op = {.kind = BACKEND_RENEW,
                            .serial = 1,
                            .ttl_ms = 3000,
                            .not_after_ms = LB_NONE,
                            .loss_ttl_ms = 30000,
                            .saw_epoch = true};
    struct command_op one = {&op, "k", 1};
    const char *words[] = {"$0\r\n\r\n", "$8\r\nr 5 6000\r\n", "$8\r\nr 5 6000\r\n"};
    const int64_t ttls[] = {29999, 30000, 30001};

    (void)strcpy(server.marker, "r 5 6000");
    for (size_t i = 0; i < LB_ARRAY_LENGTH(ttls); i++) {
        char text[1024];

        server.marker_ttl_ms = ttls[i];
        (void)snprintf(text, sizeof(text),
                       "*13\r\n$7\r\nEVALSHA\r\n$40\r\n" SHA "\r\n$1\r\n3\r\n" META_KEYS
                       "$1\r\nk\r\n$1\r\n0\r\n$0\r\n\r\n$5\r\n30000\r\n$1\r\n1\r\n"
                       "%s$4\r\n3000\r\n$10\r\nlb1:h:ab:1\r\n",
                       words[i]);
        formats_as(&one, 1, text);
    }
}
END_TEST

// The queue's key has room for the longest prefix and name.
START_TEST(test_format_longest_key)
{
    struct backend_op op = {.kind = BACKEND_RELEASE, .serial = 1};
    char key[256 + LB_KEY_BYTES_MAX + 1];
    struct command_op one = {&op, key, sizeof(key) - 1};
    char *bytes;
    size_t length;

    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    ck_assert_int_eq(command_format(&maker, &server, &one, 1, false, &bytes, &length), 0);
    ck_assert_ptr_nonnull(memmem(bytes, length, "$790\r\nlockbroker:meta:queue:kkk", 31));
    command_free(bytes, length);
}
END_TEST

START_TEST(test_format_text)
{
    struct backend_op op = {.kind = BACKEND_BREAK};
    struct command_op one = {&op, "k", 1};
    size_t length;
    char *bytes;

    ck_assert_int_eq(command_format(&maker, &server, &one, 1, true, &bytes, &length), 0);
    ck_assert_int_eq(strncmp(bytes, "*6\r\n$4\r\nEVAL\r\n$", 14), 0);
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
        renewals[i] = (struct backend_op){.kind = BACKEND_RENEW,
                                          .serial = UINT64_MAX,
                                          .ttl_ms = INT64_MAX - (int64_t)(i % 2),
                                          .fence_floor = INT64_MAX,
                                          .not_after_ms = INT64_MAX,
                                          .loss_ttl_ms = INT64_MAX,
                                          .fences = INT64_MAX};
        ops[i] = (struct command_op){&renewals[i], "key", 3};
    }
    ck_assert_int_eq(command_format(&maker, &server, ops, COMMAND_KEYS_MAX, false, &bytes, &length),
                     0);
    ck_assert_int_eq(strncmp(bytes, "*411\r\n", 6), 0);
    command_free(bytes, length);
}
END_TEST

// How many fences the operation had asked for.
static int64_t asked_fences;

// Parses the bytes as one reply and reads it as the reply to the operation.
static int read_reply(enum backend_op_kind kind, const char *bytes, size_t index, size_t count,
                      struct backend_outcome *ret_outcome)
{
    static char host[LB_HOST_BYTES_MAX + 1];
    struct backend_op op = {.kind = kind, .fence_floor = 50, .fences = asked_fences};
    struct resp_reader reader;
    struct resp *reply;
    int rc;

    *ret_outcome =
        (struct backend_outcome){.result = RESULT_UNKNOWN, .server_ms = LB_NONE, .fences = 0};
    ck_assert_int_eq(resp_reader_init(&reader), 0);
    ck_assert_int_eq(resp_reader_feed(&reader, bytes, strlen(bytes)), 0);
    ck_assert_int_eq(resp_reader_next(&reader, &reply), RESP_E_REPLY);
    rc = command_read(&maker, &op, reply, index, count, host, ret_outcome);
    resp_free(reply);
    resp_reader_deinit(&reader);
    return rc;
}

static void reads_as(enum backend_op_kind kind, const char *bytes, enum backend_result result)
{
    struct backend_outcome outcome;

    ck_assert_msg(read_reply(kind, bytes, 0, 1, &outcome) == 0, "%s", bytes);
    ck_assert_int_eq(outcome.result, result);
    ck_assert_int_eq(outcome.server_ms, 1700000000123);
    ck_assert(!outcome.was_missing);
}

START_TEST(test_read_acquire)
{
    struct backend_outcome outcome;

    ck_assert_int_eq(
        read_reply(BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:1\r\n:0\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.fence, 51);
    ck_assert_int_eq(outcome.fences, 1);
    ck_assert(!outcome.others_queue);
    ck_assert_int_eq(outcome.server_ms, 1700000000123);
    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE,
                                "*5\r\n:0\r\n:1\r\n:9007199254740991\r\n:1\r\n:2\r\n", 0, 1,
                                &outcome),
                     0);
    ck_assert_int_eq(outcome.fence, LB_INTEGER_MAX);
    ck_assert_int_eq(outcome.server_ms, 0);
    ck_assert(outcome.others_queue);
    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "*4\r\n" NOW ":0\r\n:-1\r\n$9\r\nlb1:x:a:1\r\n", 0,
                                1, &outcome),
                     0);
    ck_assert_int_eq(outcome.result, RESULT_BUSY);
    ck_assert_int_eq(outcome.holder.kind, HOLDER_BROKER);
    ck_assert_str_eq(outcome.holder.host, "x");
    ck_assert(outcome.holder.without_expiry);
    ck_assert_int_eq(outcome.holder.ttl_left_ms, LB_NONE);
    reads_as(BACKEND_ACQUIRE, "*2\r\n" NOW ":3\r\n", RESULT_CONFLICT);
    reads_as(BACKEND_ACQUIRE, "*2\r\n" NOW ":4\r\n", RESULT_LATE);
}
END_TEST

// What the server answers in the usual cases.
START_TEST(test_read_short)
{
    struct backend_outcome outcome;
    static const char *const wrong[] = {"$0\r\n\r\n",
                                        "$2\r\n50\r\n",
                                        "$3\r\n51x\r\n",
                                        "$3\r\n-51\r\n",
                                        "$16\r\n9007199254740992\r\n",
                                        "$17\r\n10000000000000000\r\n",
                                        ":51\r\n",
                                        "+51\r\n"};

    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "$16\r\n1700000000123456\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.fence, 1700000000123456);
    ck_assert_int_eq(outcome.fences, 1);
    ck_assert_int_eq(outcome.server_ms, 1700000000123);
    ck_assert(!outcome.others_queue);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(wrong); i++)
        ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, wrong[i], 0, 1, &outcome), -EPROTO);
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, ":1\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.server_ms, LB_NONE);
    ck_assert(!outcome.gave_turn);
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, ":0\r\n", 0, 1, &outcome), -EPROTO);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(read_reply(BACKEND_RENEW, NOW, i, 2, &outcome), 0);
        ck_assert_int_eq(outcome.result, RESULT_OK);
        ck_assert_int_eq(outcome.server_ms, 1700000000123);
        ck_assert(!outcome.was_missing);
        ck_assert_int_eq(outcome.fences, 0);
    }
    ck_assert_int_eq(read_reply(BACKEND_RENEW, ":-1\r\n", 0, 1, &outcome), -EPROTO);
    ck_assert_int_eq(read_reply(BACKEND_RENEW, ":9007199254740992\r\n", 0, 1, &outcome), -EPROTO);
    ck_assert_int_eq(read_reply(BACKEND_RENEW, "$2\r\n51\r\n", 0, 1, &outcome), -EPROTO);
}
END_TEST

// A marker that an acquire was answered with is known from then on, for such locks.
START_TEST(test_learn)
{
    const char *bytes = "*6\r\n" NOW ":1\r\n:51\r\n:1\r\n:0\r\n$8\r\nr 5 6000\r\n";
    struct backend_op op = {.kind = BACKEND_RENEW, .loss_ttl_ms = 30000};
    struct resp_reader reader;
    struct resp *reply;

    ck_assert_int_eq(resp_reader_init(&reader), 0);
    ck_assert_int_eq(resp_reader_feed(&reader, bytes, strlen(bytes)), 0);
    ck_assert_int_eq(resp_reader_next(&reader, &reply), RESP_E_REPLY);
    command_learn(&server, &op, reply);
    ck_assert_str_eq(server.marker, "");
    op.kind = BACKEND_ACQUIRE;
    command_learn(&server, &op, reply);
    ck_assert_str_eq(server.marker, "r 5 6000");
    ck_assert_int_eq(server.marker_ttl_ms, 30000);
    resp_free(reply);
    resp_reader_deinit(&reader);
}
END_TEST

// As many as were asked for, or fewer when the counter is far ahead of the clock.
START_TEST(test_read_fences)
{
    struct backend_outcome outcome;

    asked_fences = 8;
    ck_assert_int_eq(
        read_reply(BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:8\r\n:0\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.fences, 8);
    ck_assert_int_eq(
        read_reply(BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:9\r\n:0\r\n", 0, 1, &outcome),
        -EPROTO);
    ck_assert_int_eq(read_reply(BACKEND_RENEW, "*2\r\n" NOW ":51\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.fence, 51);
    ck_assert_int_eq(outcome.fences, 8);
    ck_assert_int_eq(read_reply(BACKEND_RENEW, "*2\r\n" NOW ":1\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_OK);
    ck_assert_int_eq(outcome.fences, 0);
    ck_assert_int_eq(read_reply(BACKEND_RENEW, "*2\r\n" NOW ":50\r\n", 0, 1, &outcome), -EPROTO);
    ck_assert_int_eq(
        read_reply(BACKEND_RENEW, "*2\r\n" NOW ":9007199254740992\r\n", 0, 1, &outcome), -EPROTO);
    asked_fences = 0;
    ck_assert_int_eq(read_reply(BACKEND_RENEW, "*2\r\n" NOW ":51\r\n", 0, 1, &outcome), -EPROTO);
}
END_TEST

START_TEST(test_read_queue)
{
    struct backend_outcome outcome;

    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "*3\r\n" NOW ":6\r\n:250\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_QUEUED);
    ck_assert_int_eq(outcome.ends_in_ms, 250);
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, "*3\r\n" NOW ":1\r\n:1\r\n", 0, 1, &outcome), 0);
    ck_assert(outcome.gave_turn);
    ck_assert_int_eq(read_reply(BACKEND_RELEASE, "*3\r\n" NOW ":0\r\n:0\r\n", 0, 1, &outcome), 0);
    ck_assert(!outcome.gave_turn);
}
END_TEST

START_TEST(test_read_quarantine)
{
    struct backend_outcome outcome;

    ck_assert_int_eq(read_reply(BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n:1\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.result, RESULT_QUARANTINED);
    ck_assert_int_eq(outcome.ends_in_ms, 1);
    ck_assert_int_eq(
        read_reply(BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n:9007199254740991\r\n", 0, 1, &outcome), 0);
    ck_assert_int_eq(outcome.ends_in_ms, LB_INTEGER_MAX);
}
END_TEST

START_TEST(test_read_statuses)
{
    struct backend_outcome outcome;
    const char *bytes = "*8\r\n" NOW ":1\r\n:0\r\n:2\r\n:3\r\n:4\r\n:6\r\n:7\r\n";
    static const enum backend_result results[] = {RESULT_OK,       RESULT_GONE, RESULT_STOLEN,
                                                  RESULT_CONFLICT, RESULT_LATE, RESULT_OK,
                                                  RESULT_REFUSED};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(results); i++) {
        ck_assert_int_eq(read_reply(BACKEND_RENEW, bytes, i, 7, &outcome), 0);
        ck_assert_int_eq(outcome.result, results[i]);
        ck_assert_int_eq(outcome.server_ms, 1700000000123);
        ck_assert(outcome.was_missing == (i == 5));
    }
    reads_as(BACKEND_RELEASE, "*3\r\n" NOW ":1\r\n:0\r\n", RESULT_OK);
    reads_as(BACKEND_RELEASE, "*3\r\n" NOW ":0\r\n:0\r\n", RESULT_GONE);
    reads_as(BACKEND_RELEASE, "*3\r\n" NOW ":2\r\n:0\r\n", RESULT_STOLEN);
    reads_as(BACKEND_RELEASE, "*2\r\n" NOW ":3\r\n", RESULT_CONFLICT);
}
END_TEST

START_TEST(test_read_looks)
{
    static const enum backend_op_kind kinds[] = {BACKEND_QUERY, BACKEND_BREAK};
    struct backend_outcome outcome;

    for (size_t i = 0; i < LB_ARRAY_LENGTH(kinds); i++) {
        reads_as(kinds[i], "*2\r\n" NOW ":0\r\n", RESULT_OK);
        reads_as(kinds[i], "*2\r\n" NOW ":3\r\n", RESULT_CONFLICT);
        ck_assert_int_eq(
            read_reply(kinds[i], "*4\r\n" NOW ":1\r\n:5\r\n$1\r\nx\r\n", 0, 1, &outcome), 0);
        ck_assert_int_eq(outcome.result, RESULT_OK);
        ck_assert_int_eq(outcome.holder.kind, HOLDER_FOREIGN);
        ck_assert_int_eq(outcome.holder.ttl_left_ms, 5);
    }
    reads_as(BACKEND_BREAK, "*2\r\n" NOW ":4\r\n", RESULT_LATE);
}
END_TEST

// No reply of our scripts: each has something missing, too much, of another kind or out of bounds.
static const struct {
    enum backend_op_kind kind;
    const char *bytes;
} misfits[] = {
    {BACKEND_ACQUIRE, "+OK\r\n"},
    {BACKEND_ACQUIRE, ":1\r\n"},
    {BACKEND_ACQUIRE, "$-1\r\n"},
    {BACKEND_ACQUIRE, "*0\r\n"},
    {BACKEND_ACQUIRE, "*-1\r\n"},
    {BACKEND_ACQUIRE, "*1\r\n" NOW},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":1\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n:-1\r\n:1\r\n:51\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n:9007199254740992\r\n:1\r\n:51\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n$1\r\n5\r\n:1\r\n:51\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW "$1\r\n1\r\n:51\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:50\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:-1\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:9007199254740992\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n$2\r\n51\r\n:1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":1\r\n:51\r\n"},
    {BACKEND_ACQUIRE, "*4\r\n" NOW ":1\r\n:51\r\n:1\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:0\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:2\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n$1\r\n1\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":1\r\n:51\r\n:1\r\n$1\r\n0\r\n"},
    {BACKEND_ACQUIRE, "*6\r\n" NOW ":1\r\n:51\r\n:1\r\n:0\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":6\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":6\r\n$1\r\n5\r\n"},
    {BACKEND_ACQUIRE, "*4\r\n" NOW ":0\r\n:-2\r\n$1\r\nx\r\n"},
    {BACKEND_ACQUIRE, "*4\r\n" NOW ":0\r\n$1\r\n5\r\n$1\r\nx\r\n"},
    {BACKEND_ACQUIRE, "*4\r\n" NOW ":0\r\n:5\r\n:5\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":0\r\n:5\r\n"},
    {BACKEND_ACQUIRE, "*5\r\n" NOW ":0\r\n:5\r\n$1\r\nx\r\n:1\r\n"},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":2\r\n"},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":-1\r\n"},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":5\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n:0\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n:-1\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n:9007199254740992\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":5\r\n$1\r\n5\r\n"},
    {BACKEND_ACQUIRE, "*4\r\n" NOW ":5\r\n:5\r\n:5\r\n"},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":6\r\n"},
    {BACKEND_ACQUIRE, "*2\r\n" NOW ":7\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":3\r\n:1\r\n"},
    {BACKEND_ACQUIRE, "*3\r\n" NOW ":4\r\n:1\r\n"},
    {BACKEND_RENEW, "+1\r\n"},
    {BACKEND_RENEW, "*0\r\n"},
    {BACKEND_RENEW, "*1\r\n" NOW},
    {BACKEND_RENEW, "*3\r\n" NOW ":1\r\n:1\r\n"},
    {BACKEND_RENEW, "*2\r\n:-1\r\n:1\r\n"},
    {BACKEND_RENEW, "*2\r\n" NOW ":5\r\n"},
    {BACKEND_RENEW, "*2\r\n" NOW ":8\r\n"},
    {BACKEND_RENEW, "*2\r\n" NOW ":-1\r\n"},
    {BACKEND_RENEW, "*2\r\n" NOW "$1\r\n1\r\n"},
    {BACKEND_RENEW, "*2\r\n" NOW "*1\r\n:1\r\n"},
    {BACKEND_RELEASE, ":2\r\n"},
    {BACKEND_RELEASE, "+1\r\n"},
    {BACKEND_RELEASE, "*1\r\n" NOW},
    {BACKEND_RELEASE, "*2\r\n" NOW ":4\r\n"},
    {BACKEND_RELEASE, "*2\r\n" NOW ":5\r\n"},
    {BACKEND_RELEASE, "*2\r\n" NOW ":6\r\n"},
    {BACKEND_RELEASE, "*2\r\n" NOW ":7\r\n"},
    {BACKEND_RELEASE, "*2\r\n" NOW ":-1\r\n"},
    {BACKEND_RELEASE, "*2\r\n" NOW ":1\r\n"},
    {BACKEND_RELEASE, "*3\r\n" NOW ":1\r\n$1\r\n1\r\n"},
    {BACKEND_RELEASE, "*4\r\n" NOW ":1\r\n:1\r\n:1\r\n"},
    {BACKEND_RELEASE, "*3\r\n" NOW ":3\r\n:1\r\n"},
    {BACKEND_QUERY, "*2\r\n" NOW ":1\r\n"},
    {BACKEND_QUERY, "*2\r\n" NOW ":2\r\n"},
    {BACKEND_QUERY, "*2\r\n" NOW ":4\r\n"},
    {BACKEND_QUERY, "*3\r\n" NOW ":0\r\n:1\r\n"},
    {BACKEND_BREAK, "*4\r\n" NOW ":1\r\n$1\r\n1\r\n$1\r\nx\r\n"},
    {BACKEND_BREAK, "*3\r\n" NOW ":3\r\n:1\r\n"},
    {BACKEND_BREAK, "*3\r\n" NOW ":4\r\n:1\r\n"},
    {BACKEND_BREAK, "*2\r\n" NOW ":5\r\n"},
    {BACKEND_BREAK, ":0\r\n"},
};

START_TEST(test_read_misfits)
{
    struct backend_outcome outcome;

    ck_assert_msg(read_reply(misfits[_i].kind, misfits[_i].bytes, 0, 1, &outcome) == -EPROTO, "%s",
                  misfits[_i].bytes);
}
END_TEST

Suite *command_suite(void)
{
    Suite *suite = suite_create("redis/command");
    TCase *tcase = tcase_create("pure");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_format_acquire);
    tcase_add_test(tcase, test_format_renew);
    tcase_add_test(tcase, test_format_renew_joined);
    tcase_add_test(tcase, test_format_others);
    tcase_add_test(tcase, test_format_marker);
    tcase_add_test(tcase, test_format_longest_key);
    tcase_add_test(tcase, test_format_text);
    tcase_add_test(tcase, test_format_largest_batch);
    tcase_add_test(tcase, test_read_acquire);
    tcase_add_test(tcase, test_read_short);
    tcase_add_test(tcase, test_learn);
    tcase_add_test(tcase, test_read_fences);
    tcase_add_test(tcase, test_read_queue);
    tcase_add_test(tcase, test_read_quarantine);
    tcase_add_test(tcase, test_read_statuses);
    tcase_add_test(tcase, test_read_looks);
    tcase_add_loop_test(tcase, test_read_misfits, 0, LB_ARRAY_LENGTH(misfits));
    suite_add_tcase(suite, tcase);
    return suite;
}
