// Every byte there is, in the places that take only some of them, and numbers at the end of
// int64_t.
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/backend_url.h"
#include "config/config.h"
#include "config/option.h"
#include "tests/unit/config/suites.h"

static bool is_one_of(int byte, const char *others)
{
    return byte < 128 && byte > 0 && (isalnum(byte) || strchr(others, byte));
}

START_TEST(test_names_of_options)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[2] = {'a', (char)byte};

        ck_assert_msg(option_name_is_plain(name, 2) == is_one_of(byte, "_-"), "byte %d", byte);
    }
    ck_assert(!option_name_is_plain("", 0));
}
END_TEST

// Whether a URL with that byte between two texts is a good one.
static bool is_url(const char *before, int byte, const char *after, struct backend_url *ret_url)
{
    char text[64];
    const char *problem;

    (void)snprintf(text, sizeof(text), "%s%c%s", before, byte, after);
    return backend_url_parse(text, ret_url, &problem) == 0;
}

START_TEST(test_hosts_in_urls)
{
    struct backend_url url;

    for (int byte = 1; byte < 256; byte++) {
        // These end the host.
        if (strchr("/:?#@", byte))
            continue;
        ck_assert_msg(is_url("redis://a", byte, "b", &url) == is_one_of(byte, "-._"), "byte %d",
                      byte);
    }
}
END_TEST

START_TEST(test_hex_digits_in_urls)
{
    struct backend_url url;

    for (int byte = 1; byte < 256; byte++) {
        bool is_hex = byte < 128 && isxdigit(byte);
        char digit[2] = {(char)byte, '\0'};
        long value = strtol(digit, NULL, 16);

        if (byte == '?' || byte == '%') // has a meaning of its own there
            continue;
        ck_assert_msg(is_url("redis+unix:///%4", byte, "", &url) == is_hex, "low digit %d", byte);
        ck_assert(!is_hex || url.path[1] == 0x40 + value);
        // %0x is a control character or NUL, of which only NUL is refused.
        ck_assert_msg(is_url("redis+unix:///%", byte, "1", &url) == is_hex, "high digit %d", byte);
        ck_assert(!is_hex || (unsigned char)url.path[1] == 0x10 * value + 1);
    }
}
END_TEST

START_TEST(test_bytes_that_a_message_may_repeat)
{
    for (int byte = 1; byte < 256; byte++) {
        struct config config;
        struct config_error error;
        char text[] = "ttl_max=x?y";
        char quoted[] = "x?y";

        config_init_defaults(&config);
        text[9] = (char)byte;
        quoted[1] = (char)(byte >= ' ' && byte <= '~' ? byte : '?');
        ck_assert_int_lt(config_set(&config, text, &error), 0);
        ck_assert_msg(strstr(error.message, quoted) != NULL, "byte %d: %s", byte, error.message);
    }
}
END_TEST

static const char *const too_large[] = {
    "9223372036854775807", // fits, but is out of the option's range
    "9223372036854775808", // one more
    "9223372036854775817", // the sum is too much, the product is not
    "92233720368547758070", "99999999999999999999999999999999",
    "9223372036854775807h", "2562047788015216h",
};

START_TEST(test_numbers_too_large)
{
    struct config config;
    struct config_error error;
    char text[64];
    int64_t before_ms;

    config_init_defaults(&config);
    before_ms = config.ttl_max_ms;
    (void)snprintf(text, sizeof(text), "ttl_max=%s", too_large[_i]);
    ck_assert_int_lt(config_set(&config, text, &error), 0);
    ck_assert_msg(strstr(error.message, " to ") != NULL, "%s", error.message); // names the range
    ck_assert_int_eq((int)config.ttl_max_ms, (int)before_ms);
}
END_TEST

Suite *bytes_suite(void)
{
    Suite *suite = suite_create("bytes");
    TCase *tests = tcase_create("bytes");

    tcase_add_test(tests, test_names_of_options);
    tcase_add_test(tests, test_hosts_in_urls);
    tcase_add_test(tests, test_hex_digits_in_urls);
    tcase_add_test(tests, test_bytes_that_a_message_may_repeat);
    tcase_add_loop_test(tests, test_numbers_too_large, 0, LB_ARRAY_LENGTH(too_large));
    suite_add_tcase(suite, tests);
    return suite;
}
