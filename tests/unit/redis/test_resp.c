// The reply parser: whole replies, cut ones, and those of a hostile server.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/resp.h"
#include "tests/unit/redis/suites.h"

static struct resp_reader reader;

static void setup(void)
{
    ck_assert_int_eq(resp_reader_init(&reader), 0);
}

static void teardown(void)
{
    resp_reader_deinit(&reader);
}

// Feeds in pieces and counts the replies; returns the last return value of resp_reader_next().
// *ret_last, if asked for, is the last reply.
static int feed(const char *bytes, size_t length, size_t piece, int *ret_count,
                struct resp **ret_last)
{
    struct resp *reply, *last = NULL;
    int rc = 0;

    *ret_count = 0;
    while (length > 0 && rc == 0) {
        size_t part = piece < length ? piece : length;

        ck_assert_int_eq(resp_reader_feed(&reader, bytes, part), 0);
        bytes += part;
        length -= part;
        while ((rc = resp_reader_next(&reader, &reply)) == RESP_E_REPLY) {
            (*ret_count)++;
            resp_free(last);
            last = reply;
        }
    }
    if (ret_last)
        *ret_last = last;
    else
        resp_free(last);
    return rc;
}

static const char mixed[] =
    "+OK\r\n-ERR no\r\n:-42\r\n$5\r\nab\r\nc\r\n$-1\r\n$0\r\n\r\n*-1\r\n*0\r\n"
    "*3\r\n:1\r\n*2\r\n$1\r\nx\r\n*1\r\n:7\r\n+yes\r\n";

static void mixed_check(size_t piece)
{
    struct resp *last;
    int count;

    ck_assert_int_eq(feed(mixed, sizeof(mixed) - 1, piece, &count, &last), 0);
    ck_assert_int_eq(count, 9);
    ck_assert_int_eq(last->kind, RESP_ARRAY);
    ck_assert_uint_eq(last->count, 3);
    ck_assert_int_eq(last->items[0].integer, 1);
    ck_assert_uint_eq(last->items[1].count, 2);
    ck_assert_str_eq(last->items[1].items[0].text, "x");
    ck_assert_int_eq(last->items[1].items[1].items[0].integer, 7);
    ck_assert_int_eq(last->items[2].kind, RESP_STATUS);
    ck_assert_str_eq(last->items[2].text, "yes");
    resp_free(last);
}

START_TEST(test_mixed)
{
    for (size_t piece = 1; piece <= sizeof(mixed); piece++)
        mixed_check(piece);
}
END_TEST

static struct resp *one(const char *bytes)
{
    struct resp *reply;
    int count;

    ck_assert_int_eq(feed(bytes, strlen(bytes), 65536, &count, &reply), 0);
    ck_assert_int_eq(count, 1);
    return reply;
}

START_TEST(test_kinds)
{
    struct resp *reply = one("-ERR no\r\n");

    ck_assert_int_eq(reply->kind, RESP_ERROR);
    ck_assert_str_eq(reply->text, "ERR no");
    resp_free(reply);
    reply = one("$5\r\nab\r\nc\r\n");
    ck_assert_int_eq(reply->kind, RESP_TEXT);
    ck_assert_uint_eq(reply->length, 5);
    ck_assert_int_eq(memcmp(reply->text, "ab\r\nc", 6), 0);
    resp_free(reply);
    reply = one("$-1\r\n");
    ck_assert_int_eq(reply->kind, RESP_NIL);
    resp_free(reply);
    reply = one(":9007199254740991\r\n");
    ck_assert_int_eq(reply->integer, 9007199254740991);
    resp_free(reply);
    reply = one("*0\r\n");
    ck_assert_int_eq(reply->kind, RESP_ARRAY);
    ck_assert_uint_eq(reply->count, 0);
    resp_free(reply);
}
END_TEST

// The bytes are an error in any cut, and no memory to speak of is taken for them.
static void refused(const char *bytes, size_t length)
{
    static const size_t pieces[] = {1, 7, 65536};

    for (size_t i = 0; i < 3; i++) {
        int count;

        teardown();
        setup();
        ck_assert_msg(feed(bytes, length, pieces[i], &count, NULL) == -EPROTO, "%.40s", bytes);
        ck_assert_int_eq(count, 0);
    }
}

START_TEST(test_hostile)
{
    static const char *const texts[] = {
        "rubbish\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
        "*2147483647\r\n",
        "*4294967296\r\n",
        "*9223372036854775807\r\n",
        "*257\r\n",
        "*-2\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "*2\r\n:1\r\n*2147483647\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "%1\r\n+a\r\n?1\r\n",
        "\r\n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        refused(texts[i], strlen(texts[i]));
}
END_TEST

// A long text that never ends: given up after a bounded number of bytes.
static void endless(const char *head)
{
    static char filler[4096];
    size_t fed = strlen(head);
    struct resp *reply;
    int rc;

    memset(filler, 'a', sizeof(filler));
    ck_assert_int_eq(resp_reader_feed(&reader, head, strlen(head)), 0);
    while ((rc = resp_reader_next(&reader, &reply)) == 0) {
        ck_assert_uint_lt(fed, RESP_TEXT_BYTES_MAX + 3 * sizeof(filler));
        ck_assert_int_eq(resp_reader_feed(&reader, filler, sizeof(filler)), 0);
        fed += sizeof(filler);
    }
    ck_assert_int_eq(rc, -EPROTO);
}

START_TEST(test_endless)
{
    static const char *const heads[] = {"$4294967296\r\n",
                                        "$2147483647\r\n",
                                        "$9223372036854775807\r\n",
                                        "$70000\r\n",
                                        "+",
                                        "-",
                                        ":",
                                        "*",
                                        "$",
                                        "*2\r\n:1\r\n$99999999\r\n"};

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        teardown();
        setup();
        endless(heads[i]);
    }
}
END_TEST

START_TEST(test_longest_text)
{
    static char bytes[RESP_TEXT_BYTES_MAX + 64];
    int head = snprintf(bytes, sizeof(bytes), "$%d\r\n", RESP_TEXT_BYTES_MAX);
    struct resp *reply;
    int count;

    memset(bytes + head, 'a', RESP_TEXT_BYTES_MAX);
    memcpy(bytes + head + RESP_TEXT_BYTES_MAX, "\r\n", 2);
    ck_assert_int_eq(feed(bytes, (size_t)head + RESP_TEXT_BYTES_MAX + 2, 4096, &count, &reply), 0);
    ck_assert_int_eq(count, 1);
    ck_assert_uint_eq(reply->length, RESP_TEXT_BYTES_MAX);
    resp_free(reply);
}
END_TEST

// Each array and text is within its limit, but all together are not.
START_TEST(test_totals)
{
    static char bytes[600000];
    size_t length = (size_t)snprintf(bytes, sizeof(bytes), "*5\r\n");

    for (int i = 0; i < 5; i++) {
        length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "*256\r\n");
        for (int j = 0; j < 256; j++)
            length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, ":1\r\n");
    }
    refused(bytes, length);

    length = (size_t)snprintf(bytes, sizeof(bytes), "*6\r\n");
    for (int i = 0; i < 6; i++) {
        length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "$60000\r\n");
        memset(bytes + length, 'a', 60000);
        length += 60000;
        length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "\r\n");
    }
    refused(bytes, length);
}
END_TEST

START_TEST(test_budget_is_for_each_reply)
{
    static char bytes[4096];
    size_t length = (size_t)snprintf(bytes, sizeof(bytes), "*256\r\n");
    int count;

    for (int j = 0; j < 256; j++)
        length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, ":1\r\n");
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(feed(bytes, length, 65536, &count, NULL), 0);
        ck_assert_int_eq(count, 1);
    }
}
END_TEST

// Whatever one byte of a good stream is turned into, nothing breaks.
START_TEST(test_flipped_bytes)
{
    char bytes[sizeof(mixed)];

    for (size_t at = 0; at < sizeof(mixed) - 1; at++) {
        for (int value = 0; value < 256; value += 5) {
            int count;

            memcpy(bytes, mixed, sizeof(mixed));
            bytes[at] = (char)value;
            teardown();
            setup();
            (void)feed(bytes, sizeof(mixed) - 1, 16, &count, NULL);
        }
    }
}
END_TEST

Suite *resp_suite(void)
{
    Suite *suite = suite_create("redis/resp");
    TCase *tcase = tcase_create("pure");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_mixed);
    tcase_add_test(tcase, test_kinds);
    tcase_add_test(tcase, test_hostile);
    tcase_add_test(tcase, test_endless);
    tcase_add_test(tcase, test_longest_text);
    tcase_add_test(tcase, test_totals);
    tcase_add_test(tcase, test_budget_is_for_each_reply);
    tcase_add_test(tcase, test_flipped_bytes);
    suite_add_tcase(suite, tcase);
    return suite;
}
