// What is printed reads back as the same options, the password excepted.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"
#include "tests/unit/config/files.h"
#include "tests/unit/config/suites.h"

static char *printed(const struct config *config, size_t *ret_length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, ret_length);

    ck_assert_ptr_nonnull(file);
    config_print(file, config);
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

static void check_round_trip(const struct config *config)
{
    struct config_error error;
    struct config again;
    size_t length;
    char *text = printed(config, &length);

    config_init_defaults(&again);
    ck_assert_int_eq(config_load_file(files_write("conf", text, length), &again, &error), 0);
    ck_assert_mem_eq(config, &again, sizeof(again));
    free(text);
}

START_TEST(test_defaults_round_trip)
{
    struct config config;

    config_init_defaults(&config);
    check_round_trip(&config);
}
END_TEST

// Least, most and an odd number between, of every number option.
START_TEST(test_numbers_round_trip)
{
    const struct option *option = option_at((size_t)_i);
    struct config config;

    if (option_is_text(option))
        return;
    config_init_defaults(&config);
    for (int i = 0; i < 3; i++) {
        int64_t value = i == 0 ? option->least : i == 1 ? option->most : option->most - 1;

        memcpy((char *)&config + option->offset, &value, sizeof(value));
        check_round_trip(&config);
    }
}
END_TEST

START_TEST(test_texts_round_trip)
{
    static const char *const sets[] = {
        "socket=/tmp/a b;c=d#e", "socket_group=www-data", "backend=redis+unix:///r%20s?db=3",
        "backend_password_file=/etc/x", "prefix=a = b : [c] \"d\" \\ k\xc3\xa4se;:"};
    struct config_error error;
    struct config config;

    config_init_defaults(&config);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(sets); i++)
        ck_assert_int_eq(config_set(&config, sets[i], &error), 0);
    check_round_trip(&config);
    ck_assert_int_eq(config_set(&config, "prefix=", &error), 0);
    ck_assert_int_eq(config_set(&config, "socket_group=", &error), 0);
    check_round_trip(&config);
}
END_TEST

START_TEST(test_password_is_masked)
{
    struct config_error error;
    struct config config;
    size_t length;
    char *text;

    config_init_defaults(&config);
    ck_assert_int_eq(config_set(&config, "backend=redis://u:hunter2@h:1/2", &error), 0);
    text = printed(&config, &length);
    ck_assert_ptr_nonnull(strstr(text, "\nbackend = redis://u:***@h:1/2\n"));
    ck_assert_ptr_null(strstr(text, "hunter2"));
    ck_assert_int_eq(config_load_file(files_write("conf", text, length), &config, &error), 0);
    free(text);
}
END_TEST

START_TEST(test_help_names_every_option)
{
    size_t length;
    char *text = NULL;
    FILE *file = open_memstream(&text, &length);

    config_print_help(file);
    ck_assert_int_eq(fclose(file), 0);
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        char line[64];

        (void)snprintf(line, sizeof(line), "\n  %s (", option_at(i)->name);
        ck_assert(strstr(text, line) || strncmp(text, line + 1, strlen(line) - 1) == 0);
        ck_assert_ptr_nonnull(strstr(text, option_at(i)->help));
    }
    ck_assert_ptr_nonnull(
        strstr(text, "  ttl_max (duration, default 30s, 1s to 1h)\n      longest time"));
    ck_assert_ptr_nonnull(
        strstr(text, "  connect_timeout (duration, default 2s, 50ms to 30s; needs a restart)\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "  socket_group (group, default empty, at most 32 bytes; needs a restart)\n"));
    free(text);
}
END_TEST

Suite *config_print_suite(void)
{
    Suite *suite = suite_create("config_print");
    TCase *tests = tcase_create("config_print");

    tcase_add_checked_fixture(tests, files_setup, files_teardown);
    tcase_add_test(tests, test_defaults_round_trip);
    tcase_add_loop_test(tests, test_numbers_round_trip, 0, OPTIONS_COUNT);
    tcase_add_test(tests, test_texts_round_trip);
    tcase_add_test(tests, test_password_is_masked);
    tcase_add_test(tests, test_help_names_every_option);
    suite_add_tcase(suite, tests);
    return suite;
}
