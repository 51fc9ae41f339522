// Backend URLs: what they mean, what is wrong with them, and that no password leaks.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/backend_url.h"
#include "tests/unit/config/suites.h"

static const struct {
    const char *text;
    struct backend_url url;
} good[] = {
    {"redis://localhost", {BACKEND_KIND_TCP, "localhost", 6379, "", "", "", 0}},
    {"redis://127.0.0.1:6380/3", {BACKEND_KIND_TCP, "127.0.0.1", 6380, "", "", "", 3}},
    {"redis://redis_1.example-net.org:1/",
     {BACKEND_KIND_TCP, "redis_1.example-net.org", 1, "", "", "", 0}},
    {"redis://h:65535/2147483647", {BACKEND_KIND_TCP, "h", 65535, "", "", "", 2147483647}},
    {"redis://[::1]", {BACKEND_KIND_TCP, "::1", 6379, "", "", "", 0}},
    {"redis://[2001:db8::7]:6380/1", {BACKEND_KIND_TCP, "2001:db8::7", 6380, "", "", "", 1}},
    {"redis://:secret@h", {BACKEND_KIND_TCP, "h", 6379, "", "", "secret", 0}},
    {"redis://u@h", {BACKEND_KIND_TCP, "h", 6379, "", "u", "", 0}},
    {"redis://u:se:cret@h:1", {BACKEND_KIND_TCP, "h", 1, "", "u", "se:cret", 0}},
    {"redis://u%40x:%2F%3a%25%40@[::1]:2/3", {BACKEND_KIND_TCP, "::1", 2, "", "u@x", "/:%@", 3}},
    {"redis+unix:///run/redis.sock", {BACKEND_KIND_UNIX, "", 0, "/run/redis.sock", "", "", 0}},
    {"redis+unix:///a%20b%3f?db=9", {BACKEND_KIND_UNIX, "", 0, "/a b?", "", "", 9}},
    {"memory://", {BACKEND_KIND_MEMORY, "", 0, "", "", "", 0}},
};

START_TEST(test_good)
{
    const char *problem = NULL;
    struct backend_url url;

    ck_assert_int_eq(backend_url_parse(good[_i].text, &url, &problem), 0);
    ck_assert_ptr_null(problem);
    ck_assert_int_eq(url.kind, good[_i].url.kind);
    ck_assert_str_eq(url.host, good[_i].url.host);
    ck_assert_int_eq(url.port, good[_i].url.port);
    ck_assert_str_eq(url.path, good[_i].url.path);
    ck_assert_str_eq(url.user, good[_i].url.user);
    ck_assert_str_eq(url.password, good[_i].url.password);
    ck_assert_int_eq(url.database, good[_i].url.database);
}
END_TEST

static const struct {
    const char *text;
    const char *problem; // a part of it
} bad[] = {
    {"", "must begin with"},
    {"localhost:6379", "must begin with"},
    {"rediss://h", "must begin with"},
    {"REDIS://h", "must begin with"},
    {"memory://x", "nothing may follow"},
    {"memory:///", "nothing may follow"},
    {"redis://", "host is missing"},
    {"redis:///0", "host is missing"},
    {"redis://:6379", "host is missing"},
    {"redis://h ", "blanks"},
    {"redis://h\n", "blanks"},
    {"redis://h\xc3\xa4", "blanks"},
    {"redis://h!", "letters, digits"},
    {"redis://h%41", "letters, digits"},
    {"redis://h?db=1", "letters, digits"},
    {"redis://h:", "port"},
    {"redis://h:0", "port"},
    {"redis://h:65536", "port"},
    {"redis://-h", "begin with -"},
    {"redis://h:99999999999", "port"},
    {"redis://h:-1", "port"},
    {"redis://h:6379x", "port"},
    {"redis://h:+1", "port"},
    {"redis://h/x", "database"},
    {"redis://h/-1", "database"},
    {"redis://h/2147483648", "database"},
    {"redis://h/0/1", "database"},
    {"redis://h/0?x", "database"},
    {"redis://::1", "in brackets"},
    {"redis://fe80::1:6379", "in brackets"},
    {"redis://[::1", "never closed"},
    {"redis://[]", "valid IPv6"},
    {"redis://[::g]", "valid IPv6"},
    {"redis://[127.0.0.1]", "valid IPv6"},
    {"redis://[fe80::1%25eth0]", "valid IPv6"},
    {"redis://[::1]x", "only :PORT"},
    {"redis://[::1]:", "port"},
    {"redis://x[::1]", "start of the host"},
    {"redis://@h", "nothing before the @"},
    {"redis://:@h", "password is empty"},
    {"redis://u:@h", "password is empty"},
    {"redis://u:%@h", "bad %XX"},
    {"redis://u:%4@h", "bad %XX"},
    {"redis://u:%zz@h", "bad %XX"},
    {"redis://u:%00@h", "bad %XX"},
    {"redis://u%0:p@h", "bad %XX"},
    {"redis://u:se@cret@h", "%40"},
    {"redis://u:se/cret@h", "%2F"},
    {"redis+unix://run/redis.sock", "absolute path"},
    {"redis+unix://", "absolute path"},
    {"redis+unix://:secret@/run/redis.sock", "absolute path"},
    {"redis+unix:///s%0", "bad %XX"},
    {"redis+unix:///s%00", "bad %XX"},
    {"redis+unix:///s?", "only db=N"},
    {"redis+unix:///s?database=1", "only db=N"},
    {"redis+unix:///s?db=", "database"},
    {"redis+unix:///s?db=x", "database"},
    {"redis+unix:///s?db=1&x=2", "database"},
};

START_TEST(test_bad)
{
    struct backend_url url = {.port = 4711};
    const char *problem = NULL;

    ck_assert_int_eq(backend_url_parse(bad[_i].text, &url, &problem), -EINVAL);
    ck_assert_msg(strstr(problem, bad[_i].problem), "%s: %s", bad[_i].text, problem);
    ck_assert_int_eq(url.port, 4711);
}
END_TEST

// `lead`, then `length` letters, then `tail`.
static int parse_long(const char *lead, size_t length, const char *tail, const char **ret_problem)
{
    struct backend_url url;
    char text[2048];
    size_t lead_length = strlen(lead);

    memcpy(text, lead, lead_length);
    memset(text + lead_length, 'x', length);
    memcpy(text + lead_length + length, tail, strlen(tail) + 1);
    return backend_url_parse(text, &url, ret_problem);
}

START_TEST(test_lengths)
{
    const char *problem = NULL;

    ck_assert_int_eq(parse_long("redis://", 253, ":1", &problem), 0);
    ck_assert_int_eq(parse_long("redis://", 254, ":1", &problem), -EINVAL);
    ck_assert_ptr_nonnull(strstr(problem, "253"));
    ck_assert_int_eq(parse_long("redis://", 256, ":p@h", &problem), 0);
    ck_assert_int_eq(parse_long("redis://", 257, ":p@h", &problem), -EINVAL);
    ck_assert_ptr_nonnull(strstr(problem, "256"));
    ck_assert_int_eq(parse_long("redis://:", 512, "@h", &problem), 0);
    ck_assert_int_eq(parse_long("redis://:", 513, "@h", &problem), -EINVAL);
    ck_assert_ptr_nonnull(strstr(problem, "512"));
    ck_assert_int_eq(parse_long("redis+unix:///", 106, "?db=1", &problem), 0);
    ck_assert_int_eq(parse_long("redis+unix:///", 107, "?db=1", &problem), -EINVAL);
    ck_assert_ptr_nonnull(strstr(problem, "107"));
    ck_assert_int_eq(parse_long("redis://[", 254, "]", &problem), -EINVAL);
    ck_assert_int_eq(parse_long("redis://", 1016, "", &problem), -EINVAL);
    ck_assert_ptr_nonnull(strstr(problem, "1023"));
}
END_TEST

static const struct {
    const char *text;
    const char *masked;
} masks[] = {
    {"redis://h:1/2", "redis://h:1/2"},
    {"redis://u@h", "redis://u@h"},
    {"redis://:secret@h", "redis://:***@h"},
    {"redis://u:s:e@[::1]:2/3", "redis://u:***@[::1]:2/3"},
    {"redis+unix:///a:b@c?db=1", "redis+unix:///a:b@c?db=1"},
    {"memory://", "memory://"},
};

START_TEST(test_mask)
{
    char text[BACKEND_URL_BYTES_MAX + 4];
    struct backend_url url;
    const char *problem;

    backend_url_mask(masks[_i].text, text, sizeof(text));
    ck_assert_str_eq(text, masks[_i].masked);
    ck_assert_int_eq(backend_url_parse(text, &url, &problem), 0);
}
END_TEST

Suite *backend_url_suite(void)
{
    Suite *suite = suite_create("backend_url");
    TCase *tests = tcase_create("backend_url");

    tcase_add_loop_test(tests, test_good, 0, LB_ARRAY_LENGTH(good));
    tcase_add_loop_test(tests, test_bad, 0, LB_ARRAY_LENGTH(bad));
    tcase_add_loop_test(tests, test_mask, 0, LB_ARRAY_LENGTH(masks));
    tcase_add_test(tests, test_lengths);
    suite_add_tcase(suite, tests);
    return suite;
}
