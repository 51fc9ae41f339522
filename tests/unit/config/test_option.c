// The table of options as a whole: what must be true of every row.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "config/option.h"
#include "tests/unit/config/suites.h"

static const char *const level_names[] = {"error", "warning", "notice", "info", "debug"};

static const struct option *number_option(int index)
{
    const struct option *option = option_at((size_t)index);

    return option_is_text(option) ? NULL : option;
}

static int64_t number_of(const struct option *option, const struct config *config)
{
    int64_t value;

    ck_assert_uint_eq(option->size, sizeof(value));
    memcpy(&value, (const char *)config + option->offset, sizeof(value));
    return value;
}

// The default is within the range, and is what config_init_defaults() sets.
START_TEST(test_default)
{
    const struct option *option = option_at((size_t)_i);
    char text[OPTION_TEXT_BYTES_MAX], message[CONFIG_MESSAGE_BYTES_MAX];
    struct config config, again;

    config_init_defaults(&config);
    option_get(option, &config, text);
    ck_assert_str_eq(text, option->fallback);
    config_init_defaults(&again);
    ck_assert_int_eq(option_set(option, option->fallback, &again, message), 0);
    ck_assert_mem_eq(&config, &again, sizeof(config));
    ck_assert_ptr_eq(option_find(option->name), option);
}
END_TEST

// Least and most are taken, and read back as the same number.
START_TEST(test_range_ends)
{
    const struct option *option = number_option(_i);
    char message[CONFIG_MESSAGE_BYTES_MAX], text[VALUE_FORMAT_BYTES_MAX];
    struct config config;

    if (!option)
        return;
    config_init_defaults(&config);
    value_format(option->type, option->least, text);
    ck_assert_int_eq(option_set(option, text, &config, message), 0);
    ck_assert_int_eq(number_of(option, &config), option->least);
    value_format(option->type, option->most, text);
    ck_assert_int_eq(option_set(option, text, &config, message), 0);
    ck_assert_int_eq(number_of(option, &config), option->most);
}
END_TEST

static void check_refused(const struct option *option, const char *text, const char *expected)
{
    char message[CONFIG_MESSAGE_BYTES_MAX];
    struct config config, before;

    config_init_defaults(&config);
    before = config;
    ck_assert_int_eq(option_set(option, text, &config, message), -EINVAL);
    ck_assert_msg(strstr(message, expected), "%s = %s: %s", option->name, text, message);
    ck_assert_mem_eq(&config, &before, sizeof(config));
}

// One less and one more are not.
START_TEST(test_beyond_range)
{
    const struct option *option = number_option(_i);
    char text[VALUE_FORMAT_BYTES_MAX];

    if (!option || option->type == VALUE_LEVEL || option->type == VALUE_LOSS)
        return;
    value_format(option->type, option->most + 1, text);
    check_refused(option, text, "is not within");
    check_refused(option, "77777777777777777777777777777777", "is not within");
    if (option->least == 0)
        return;
    value_format(option->type, option->least - 1, text);
    check_refused(option, text, "is not within");
}
END_TEST

START_TEST(test_nonsense)
{
    static const char *const nonsense[] = {"",          "x",   "-1",    "+1", "1.5", "1e3",
                                           "0x10",      "1 s", " 1",    "1 ", "30S", "1d",
                                           "5 parsecs", "1kb", "1MiBx", "s",  "INFO"};
    const struct option *option = number_option(_i);

    for (size_t i = 0; option && i < LB_ARRAY_LENGTH(nonsense); i++)
        check_refused(option, nonsense[i], value_description(option->type));
}
END_TEST

START_TEST(test_text_lengths)
{
    const struct option *option = option_at((size_t)_i);
    char message[CONFIG_MESSAGE_BYTES_MAX], text[OPTION_TEXT_BYTES_MAX + 8];
    struct config config;

    if (!option_is_text(option))
        return;
    config_init_defaults(&config);
    ck_assert_uint_lt((size_t)option->most, option->size);
    ck_assert_uint_lt((size_t)option->most, OPTION_TEXT_BYTES_MAX);
    memset(text, 'x', sizeof(text));
    text[0] = option->type == VALUE_PATH ? '/' : 'x';
    text[option->most] = '\0';
    if (option->type != VALUE_BACKEND) {
        ck_assert_int_eq(option_set(option, text, &config, message), 0);
        ck_assert_str_eq((char *)&config + option->offset, text);
    }
    text[option->most] = 'x';
    text[option->most + 1] = '\0';
    check_refused(option, text, "longer than");
    if (option->least > 0)
        check_refused(option, "", "must not be empty");
}
END_TEST

START_TEST(test_text_bytes)
{
    const struct option *option = option_at((size_t)_i);

    if (!option_is_text(option))
        return;
    check_refused(option, "/a\nb", "control character");
    check_refused(option, "/a\tb", "control character");
    check_refused(option, "/a\x7f", "control character");
    check_refused(option, " /a", "begins with a blank");
    check_refused(option, "/a ", "ends with a blank");
    check_refused(option, "/a ;b", "begins a comment");
    check_refused(option, ";b", "begins a comment");
}
END_TEST

// A shorter text leaves nothing of the longer one: members are compared as bytes.
START_TEST(test_text_is_replaced_wholly)
{
    const struct option *prefix = option_find("prefix");
    char message[CONFIG_MESSAGE_BYTES_MAX];
    struct config config, fresh;

    config_init_defaults(&config);
    config_init_defaults(&fresh);
    ck_assert_int_eq(option_set(prefix, "a-long-prefix:of:locks:", &config, message), 0);
    ck_assert(!option_is_equal(prefix, &config, &fresh));
    ck_assert_int_eq(option_set(prefix, "lockbroker:lock:", &config, message), 0);
    ck_assert(option_is_equal(prefix, &config, &fresh));
}
END_TEST

START_TEST(test_units)
{
    static const struct {
        const char *option, *text, *printed;
    } cases[] = {
        {"ttl_max", "1500", "1500ms"},     {"ttl_max", "1500ms", "1500ms"},
        {"ttl_max", "60s", "1m"},          {"ttl_max", "90s", "90s"},
        {"max_wait", "120m", "2h"},        {"max_wait", "24h", "24h"},
        {"drain_timeout", "0", "0s"},      {"drain_timeout", "0h", "0s"},
        {"output_max", "65536", "64KiB"},  {"output_max", "65537", "65537"},
        {"output_max", "2048KiB", "2MiB"}, {"requests_max", "007", "7"},
        {"socket_mode", "600", "0600"},    {"socket_mode", "0", "0000"},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        const struct option *option = option_find(cases[i].option);
        char message[CONFIG_MESSAGE_BYTES_MAX], text[OPTION_TEXT_BYTES_MAX];
        struct config config;

        config_init_defaults(&config);
        ck_assert_int_eq(option_set(option, cases[i].text, &config, message), 0);
        option_get(option, &config, text);
        ck_assert_str_eq(text, cases[i].printed);
    }
}
END_TEST

START_TEST(test_losses)
{
    static const char *const refused[] = {"", "quarantin", "quarantines", "Ignore", "0", "no"};
    const struct option *option = option_find("data_loss");
    char message[CONFIG_MESSAGE_BYTES_MAX], text[OPTION_TEXT_BYTES_MAX];
    struct config config;

    config_init_defaults(&config);
    ck_assert_int_eq(config.data_loss, CONFIG_LOSS_QUARANTINE);
    ck_assert_int_eq(option_set(option, "ignore", &config, message), 0);
    ck_assert_int_eq(config.data_loss, CONFIG_LOSS_IGNORE);
    option_get(option, &config, text);
    ck_assert_str_eq(text, "ignore");
    ck_assert_int_eq(option_set(option, "quarantine", &config, message), 0);
    ck_assert_int_eq(config.data_loss, CONFIG_LOSS_QUARANTINE);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(refused); i++)
        check_refused(option, refused[i], "is not quarantine or ignore");
}
END_TEST

START_TEST(test_levels)
{
    const struct option *option = option_find("log_level");
    char message[CONFIG_MESSAGE_BYTES_MAX];
    struct config config;

    for (int level = CONFIG_LEVEL_ERROR; level <= CONFIG_LEVEL_DEBUG; level++) {
        ck_assert_int_eq(option_set(option, level_names[level], &config, message), 0);
        ck_assert_int_eq(config.log_level, level);
    }
}
END_TEST

START_TEST(test_texts_of_a_kind)
{
    check_refused(option_find("socket"), "run/x.sock", "must be absolute");
    check_refused(option_find("backend_password_file"), "secret", "must be absolute");
    check_refused(option_find("socket_group"), "a b", "letters, digits");
    check_refused(option_find("socket_group"), "-1", "letters, digits");
    check_refused(option_find("socket_mode"), "0888", "file mode");
    check_refused(option_find("backend"), "redis://:hunter2@h:x", "port");
    check_refused(option_find("prefix"), "lockbroker:meta:", "the broker's own");
    check_refused(option_find("prefix"), "lockbroker:meta:x", "the broker's own");
}
END_TEST

START_TEST(test_suggest)
{
    ck_assert_str_eq(option_suggest("ttl_mx"), "ttl_max");
    ck_assert_str_eq(option_suggest("ttlmax"), "ttl_max");
    ck_assert_str_eq(option_suggest("socket_group_"), "socket_group");
    ck_assert_str_eq(option_suggest("log_levels"), "log_level");
    ck_assert_str_eq(option_suggest("TTL-MAX"), "ttl_max");
    ck_assert_ptr_null(option_suggest("zzz"));
    ck_assert_ptr_null(option_suggest("q"));
    ck_assert_ptr_null(option_suggest(""));
    ck_assert_ptr_null(option_suggest("ttl_max_ttl_max_ttl_max_ttl_max_ttl_max_"));
}
END_TEST

Suite *option_suite(void)
{
    Suite *suite = suite_create("option");
    TCase *tests = tcase_create("option");

    tcase_add_loop_test(tests, test_default, 0, OPTIONS_COUNT);
    tcase_add_loop_test(tests, test_range_ends, 0, OPTIONS_COUNT);
    tcase_add_loop_test(tests, test_beyond_range, 0, OPTIONS_COUNT);
    tcase_add_loop_test(tests, test_nonsense, 0, OPTIONS_COUNT);
    tcase_add_loop_test(tests, test_text_lengths, 0, OPTIONS_COUNT);
    tcase_add_loop_test(tests, test_text_bytes, 0, OPTIONS_COUNT);
    tcase_add_test(tests, test_text_is_replaced_wholly);
    tcase_add_test(tests, test_units);
    tcase_add_test(tests, test_levels);
    tcase_add_test(tests, test_losses);
    tcase_add_test(tests, test_texts_of_a_kind);
    tcase_add_test(tests, test_suggest);
    suite_add_tcase(suite, tests);
    return suite;
}
