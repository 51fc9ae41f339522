// Tokens, gates and pauses: the pure small parts.
#include <errno.h>
#include <string.h>

#include "daemon/redis/backoff.h"
#include "daemon/redis/gate.h"
#include "daemon/redis/resolve.h"
#include "daemon/redis/token.h"
#include "tests/unit/redis/suites.h"

#define HEX32 "0123456789abcdef0123456789abcdef"
#define X64   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static struct token_maker maker;

static void setup(void)
{
    ck_assert_int_eq(token_maker_init(&maker, "here", HEX32), 0);
}

static enum holder_kind classify(const char *value, char ret_host[LB_HOST_BYTES_MAX + 1])
{
    return token_classify(&maker, value, strlen(value), ret_host);
}

START_TEST(test_write)
{
    char token[TOKEN_BYTES_MAX + 1];

    ck_assert_uint_eq(token_write(&maker, 42, token), strlen("lb1:here:" HEX32 ":42"));
    ck_assert_str_eq(token, "lb1:here:" HEX32 ":42");
    (void)token_write(&maker, UINT64_MAX, token);
    ck_assert_str_eq(token, "lb1:here:" HEX32 ":18446744073709551615");
}
END_TEST

// The digests are those of FIPS 180 for "abc", and of sha1sum.
START_TEST(test_queue_id)
{
    char id[TOKEN_QUEUE_ID_LENGTH + 1];

    token_queue_id("abc", id);
    ck_assert_str_eq(id, "a9993e364706816a");
    ck_assert_str_eq(maker.queue_id, "b1775a785f09a6eb");
}
END_TEST

START_TEST(test_longest_token_fits)
{
    char token[TOKEN_BYTES_MAX + 1], host[LB_HOST_BYTES_MAX + 1];
    struct token_maker longest;
    size_t length;

    ck_assert_int_eq(token_maker_init(&longest, X64, HEX32 HEX32), 0);
    length = token_write(&longest, UINT64_MAX, token);
    ck_assert_uint_eq(length, TOKEN_BYTES_MAX);
    ck_assert_int_eq(token_classify(&longest, token, length, host), HOLDER_LOCAL);
    ck_assert_str_eq(host, X64);
}
END_TEST

START_TEST(test_bad_makers)
{
    struct token_maker other;

    ck_assert_int_eq(token_maker_init(&other, "", HEX32), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "a:b", HEX32), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "a b", HEX32), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "a\x7f", HEX32), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, X64 "x", HEX32), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "here", ""), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "here", "XYZ"), -EINVAL);
    ck_assert_int_eq(token_maker_init(&other, "here", HEX32 HEX32 "0"), -EINVAL);
}
END_TEST

START_TEST(test_classify)
{
    char host[LB_HOST_BYTES_MAX + 1];

    ck_assert_int_eq(classify("lb1:here:" HEX32 ":1", host), HOLDER_LOCAL);
    ck_assert_str_eq(host, "here");
    ck_assert_int_eq(classify("lb1:there:" HEX32 ":1", host), HOLDER_BROKER);
    ck_assert_str_eq(host, "there");
    ck_assert_int_eq(classify("lb1:here:abc:1", host), HOLDER_BROKER);
    ck_assert_int_eq(classify("lb1:" X64 ":abc:1", host), HOLDER_BROKER);
    ck_assert_str_eq(host, X64);
}
END_TEST

START_TEST(test_classify_foreign)
{
    static const char *const values[] = {
        "",
        "l",
        "lb1",
        "lb1:",
        "lb1::abc:1",
        "lb1:there",
        "lb1:there:",
        "lb1:there::1",
        "lb1:there:abc",
        "lb1:there:abc:",
        "lb1:there:abc:x",
        "lb1:there:abc:1x",
        "lb1:there:abc:1:2",
        "lb1:there:ABC:1",
        "lb1:the re:abc:1",
        "lb1:the\nre:abc:1",
        "lb1:th\xc3\xa9re:abc:1",
        "lb1:" X64 "x:abc:1",
        "lb1:there:" HEX32 HEX32 "0:1",
        "lb1:there:abc:123456789012345678901",
        "LB1:there:abc:1",
        "lb2:there:abc:1",
        "87c2e6f0-stranger",
    };
    char host[LB_HOST_BYTES_MAX + 1];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(values); i++) {
        ck_assert_msg(classify(values[i], host) == HOLDER_FOREIGN, "%s", values[i]);
        ck_assert_str_eq(host, "");
    }
    ck_assert_int_eq(token_classify(&maker, "lb1:there:abc:1\0", 16, host), HOLDER_FOREIGN);
    ck_assert_int_eq(token_classify(&maker, "lb1:th\0re:abc:1", 15, host), HOLDER_FOREIGN);
}
END_TEST

START_TEST(test_backoff_doubles_within_caps)
{
    struct backoff backoff;
    struct rng rng;
    int64_t pause;

    rng_init(&rng, 3);
    backoff_reset(&backoff);
    for (int64_t step = BACKOFF_FIRST_MS; step < 100000; step *= 2) {
        int64_t cap = step < BACKOFF_MAX_MS ? step : BACKOFF_MAX_MS;

        pause = backoff_next(&backoff, false, &rng);
        ck_assert_int_le(pause, cap);
        ck_assert_int_ge(pause, cap / 2);
    }
    pause = backoff_next(&backoff, true, &rng);
    ck_assert_int_le(pause, BACKOFF_URGENT_MAX_MS);
    ck_assert_int_ge(pause, BACKOFF_URGENT_MAX_MS / 2);
    backoff_reset(&backoff);
    ck_assert_int_le(backoff_next(&backoff, true, &rng), BACKOFF_FIRST_MS);
}
END_TEST

START_TEST(test_gate)
{
    struct gate gate = {0};
    int64_t held_back = -1;

    ck_assert(gate_pass(&gate, "a", 1000, &held_back));
    ck_assert_int_eq(held_back, 0);
    ck_assert(!gate_pass(&gate, "a", 60999, &held_back));
    ck_assert(!gate_pass(&gate, "a", 30000, &held_back));
    ck_assert(gate_pass(&gate, "a", 61000, &held_back));
    ck_assert_int_eq(held_back, 2);
    ck_assert(!gate_pass(&gate, "b", 61999, &held_back));
    ck_assert(gate_pass(&gate, "b", 62000, &held_back));
    ck_assert_int_eq(held_back, 1);
    ck_assert(!gate_pass(&gate, "b", 62001, &held_back));
    gate_reset(&gate);
    ck_assert(gate_pass(&gate, "b", 62001, &held_back));
    ck_assert_int_eq(held_back, 0);
}
END_TEST

START_TEST(test_hosts)
{
    char longest[RESOLVE_HOST_BYTES_MAX + 2];

    ck_assert(resolve_host_is_valid("localhost"));
    ck_assert(resolve_host_is_valid("redis-1.example.org"));
    ck_assert(resolve_host_is_valid("my_redis"));
    ck_assert(resolve_host_is_valid("10.0.0.1"));
    ck_assert(resolve_host_is_valid("::1"));
    ck_assert(!resolve_host_is_valid(""));
    ck_assert(!resolve_host_is_valid("-x"));
    ck_assert(!resolve_host_is_valid("a b"));
    ck_assert(!resolve_host_is_valid("a\nb"));
    ck_assert(!resolve_host_is_valid("a:b"));
    ck_assert(!resolve_host_is_valid("b\xc3\xbc"
                                     "cher"));
    memset(longest, 'a', sizeof(longest));
    longest[RESOLVE_HOST_BYTES_MAX] = '\0';
    ck_assert(resolve_host_is_valid(longest));
    longest[RESOLVE_HOST_BYTES_MAX] = 'a';
    longest[RESOLVE_HOST_BYTES_MAX + 1] = '\0';
    ck_assert(!resolve_host_is_valid(longest));
}
END_TEST

Suite *token_suite(void)
{
    Suite *suite = suite_create("redis/token");
    TCase *tcase = tcase_create("pure");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_write);
    tcase_add_test(tcase, test_queue_id);
    tcase_add_test(tcase, test_longest_token_fits);
    tcase_add_test(tcase, test_bad_makers);
    tcase_add_test(tcase, test_classify);
    tcase_add_test(tcase, test_classify_foreign);
    tcase_add_test(tcase, test_backoff_doubles_within_caps);
    tcase_add_test(tcase, test_gate);
    tcase_add_test(tcase, test_hosts);
    suite_add_tcase(suite, tcase);
    return suite;
}
