// The set of options: assignments, messages, checks across options, changes at run time.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "tests/unit/config/suites.h"

// The values that the documentation promises, each by hand.
START_TEST(test_defaults)
{
    struct config config;

    config_init_defaults(&config);
    ck_assert_str_eq(config.socket, "/run/lockbroker.sock");
    ck_assert_int_eq(config.socket_mode, 0660);
    ck_assert_str_eq(config.socket_group, "");
    ck_assert_str_eq(config.backend, "redis://127.0.0.1:6379/0");
    ck_assert_str_eq(config.backend_password_file, "");
    ck_assert_str_eq(config.prefix, "lockbroker:lock:");
    ck_assert_int_eq(config.ttl_max_ms, 30000);
    ck_assert_int_eq(config.max_wait_ms, 3600000);
    ck_assert_int_eq(config.retry_max_ms, 1000);
    ck_assert_int_eq(config.fence_block, 256);
    ck_assert_int_eq(config.handoff_grants_max, 16);
    ck_assert_int_eq(config.handoff_time_max_ms, 100);
    ck_assert_int_eq(config.yield_after_ms, 5000);
    ck_assert_int_eq(config.linger_ms, 0);
    ck_assert_int_eq(config.busy_cache_ms, 0);
    ck_assert_int_eq(config.waiters_key_max, 100000);
    ck_assert_int_eq(config.waiters_client_max, 16384);
    ck_assert_int_eq(config.slow_wait_ms, 0);
    ck_assert_int_eq(config.slow_hold_ms, 0);
    ck_assert_int_eq(config.connect_timeout_ms, 2000);
    ck_assert_int_eq(config.requests_max, 16384);
    ck_assert_int_eq(config.connections_max, 4096);
    ck_assert_int_eq(config.output_max_bytes, 1048576);
    ck_assert_int_eq(config.idle_timeout_ms, 30000);
    ck_assert_int_eq(config.line_timeout_ms, 10000);
    ck_assert_int_eq(config.drain_timeout_ms, 4000);
    ck_assert_int_eq(config.log_level, CONFIG_LEVEL_INFO);
}
END_TEST

static const struct {
    const char *option, *least, *most, *too_little, *too_much;
} ranges[] = {
    {"ttl_max", "1s", "1h", "999ms", "3600001ms"},
    {"max_wait", "1s", "24h", "999", "86400001"},
    {"retry_max", "10ms", "10s", "9", "10001"},
    {"fence_block", "1", "65536", "0", "65537"},
    {"handoff_grants_max", "1", "1000000", "0", "1000001"},
    {"handoff_time_max", "1ms", "60s", "0", "60001"},
    {"yield_after", "0", "1h", NULL, "3600001"},
    {"linger", "0", "1s", NULL, "1001"},
    {"busy_cache", "0s", "1s", NULL, "1001"},
    {"waiters_key_max", "1", "10000000", "0", "10000001"},
    {"waiters_client_max", "1", "1000000", "0", "1000001"},
    {"slow_wait", "0", "24h", NULL, "86400001"},
    {"slow_hold", "0s", "24h", NULL, "86400001"},
    {"connect_timeout", "50ms", "30s", "49", "30001"},
    {"requests_max", "1", "1000000", "0", "1000001"},
    {"connections_max", "1", "100000", "0", "100001"},
    {"output_max", "64KiB", "64MiB", "65535", "67108865"},
    {"idle_timeout", "1s", "1h", "999", "3600001"},
    {"line_timeout", "100ms", "1h", "99", "3600001"},
    {"drain_timeout", "0", "60s", NULL, "60001"},
    {"socket_mode", "0", "0777", NULL, "01000"},
};

static int set_to(const char *option, const char *value)
{
    struct config_error error;
    struct config config;
    char assignment[128];

    config_init_defaults(&config);
    (void)snprintf(assignment, sizeof(assignment), "%s=%s", option, value);
    return config_set(&config, assignment, &error);
}

START_TEST(test_promised_ranges)
{
    ck_assert_int_eq(set_to(ranges[_i].option, ranges[_i].least), 0);
    ck_assert_int_eq(set_to(ranges[_i].option, ranges[_i].most), 0);
    if (ranges[_i].too_little)
        ck_assert_int_eq(set_to(ranges[_i].option, ranges[_i].too_little), -EINVAL);
    ck_assert_int_eq(set_to(ranges[_i].option, ranges[_i].too_much), -EINVAL);
}
END_TEST

START_TEST(test_set)
{
    struct config_error error;
    struct config config;

    config_init_defaults(&config);
    ck_assert_int_eq(config_set(&config, "ttl_max=5s", &error), 0);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
    ck_assert_int_eq(config_set(&config, "prefix=", &error), 0);
    ck_assert_str_eq(config.prefix, "");
    ck_assert_int_eq(config_set(&config, "prefix=a=b:", &error), 0);
    ck_assert_str_eq(config.prefix, "a=b:");
    ck_assert_int_eq(config_set(&config, " \tttl_max = 6s\t ", &error), 0);
    ck_assert_int_eq(config.ttl_max_ms, 6000);
    ck_assert_int_eq(config_set(&config, "prefix =  a b: ", &error), 0);
    ck_assert_str_eq(config.prefix, "a b:");
    ck_assert_int_eq(config_set(&config, "prefix = ", &error), 0);
    ck_assert_str_eq(config.prefix, "");
    ck_assert_int_eq(config_set_flag(&config, "--socket", "socket", "/tmp/s", &error), 0);
    ck_assert_str_eq(config.socket, "/tmp/s");
}
END_TEST

static const struct {
    const char *assignment, *text;
} wrong_sets[] = {
    {"ttl_max=5 parsecs",
     "--set ttl_max: \"5 parsecs\" is not a duration (for example 30s, 500ms, 1h)"},
    {"ttl_max=2h", "--set ttl_max: \"2h\" is not within 1s to 1h"},
    {"output_max=1", "--set output_max: \"1\" is not within 64KiB to 64MiB"},
    {"socket_mode=1000", "--set socket_mode: \"1000\" is not within 0000 to 0777"},
    {"requests_max=\x1b[31m", "--set requests_max: \"?[31m\" is not a whole number"},
    {"log_level=loud",
     "--set log_level: \"loud\" is not a log level (error, warning, notice, info or debug)"},
    {"socket=x", "--set socket: the path must be absolute"},
    {"ttl=5s", "--set: `ttl` is no option"},
    {"ttl_mx=5s", "--set: `ttl_mx` is no option; did you mean ttl_max?"},
    {"ttl-max=5s", "--set: `ttl-max` is no option; did you mean ttl_max?"},
    {" TTL-Max = 5s", "--set: `TTL-Max` is no option; did you mean ttl_max?"},
    {"ttl_max = 5 s ", "--set ttl_max: \"5 s\" is not a duration (for example 30s, 500ms, 1h)"},
    {"backend=redis://:hunter2@h:0", "--set backend: the port must be a number from 1 to 65535"},
    {"bakcend=redis://:hunter2@h", "--set: `bakcend` is no option; did you mean backend?"},
    {"redis://:hunter2@h", "--set: an option's name, = and its value are wanted"},
    {"redis://:hunter2=@h", "--set: an option's name, = and its value are wanted"},
    {"=x", "--set: an option's name, = and its value are wanted"},
    {"", "--set: an option's name, = and its value are wanted"},
    {" =x", "--set: an option's name, = and its value are wanted"},
    {"ttl max=5s", "--set: an option's name, = and its value are wanted"},
    {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1",
     "--set: an option's name, = and its value are wanted"},
};

START_TEST(test_set_wrongly)
{
    struct config config, before;
    struct config_error error;
    char text[1024];

    config_init_defaults(&config);
    before = config;
    ck_assert_int_eq(config_set(&config, wrong_sets[_i].assignment, &error), -EINVAL);
    config_error_format(&error, text, sizeof(text));
    ck_assert_str_eq(text, wrong_sets[_i].text);
    ck_assert_mem_eq(&config, &before, sizeof(config));
}
END_TEST

START_TEST(test_long_values_are_cut_in_messages)
{
    struct config_error error;
    struct config config;
    char assignment[4096] = "ttl_max=";

    config_init_defaults(&config);
    memset(assignment + 8, 'x', sizeof(assignment) - 9);
    ck_assert_int_eq(config_set(&config, assignment, &error), -EINVAL);
    ck_assert_uint_lt(strlen(error.message), 200);
    ck_assert_ptr_nonnull(strstr(error.message, "xxx...\""));
}
END_TEST

START_TEST(test_a_long_value_is_refused_not_cut)
{
    struct config_error error;
    struct config config;
    char assignment[1200] = "backend_password_file=/";
    size_t begin = strlen(assignment) - 1;

    config_init_defaults(&config);
    memset(assignment + begin + 1, 'x', 1022);
    assignment[begin + 1023] = '\0';
    ck_assert_int_eq(config_set(&config, assignment, &error), 0);
    ck_assert_uint_eq(strlen(config.backend_password_file), 1023);
    assignment[begin + 1023] = 'x';
    assignment[begin + 1024] = '\0';
    ck_assert_int_eq(config_set(&config, assignment, &error), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "longer than 1023"));
}
END_TEST

START_TEST(test_flag_errors_name_the_flag)
{
    struct config_error error;
    struct config config;
    char text[1024];

    config_init_defaults(&config);
    ck_assert_int_eq(config_set_flag(&config, "--backend", "backend", "redis://:p4ss@", &error),
                     -EINVAL);
    config_error_format(&error, text, sizeof(text));
    ck_assert_str_eq(text, "--backend: the host is missing");
}
END_TEST

START_TEST(test_error_is_cut_to_fit)
{
    struct config_error error = {.place = "/etc/f", .line = 12, .option = "o", .message = "m"};
    char text[8], whole[64];

    config_error_format(&error, whole, sizeof(whole));
    ck_assert_str_eq(whole, "/etc/f:12: o: m");
    config_error_format(&error, text, sizeof(text));
    ck_assert_str_eq(text, "/etc/f:");
    error.line = 0;
    error.option[0] = '\0';
    config_error_format(&error, whole, sizeof(whole));
    ck_assert_str_eq(whole, "/etc/f: m");
}
END_TEST

static int validated(const char *backend, const char *password_file, char ret_text[1024])
{
    struct config_error error;
    struct config config;
    int rc;

    config_init_defaults(&config);
    ck_assert_int_eq(config_set_flag(&config, "--backend", "backend", backend, &error), 0);
    ck_assert_int_eq(config_set_flag(&config, "f", "backend_password_file", password_file, &error),
                     0);
    rc = config_validate(&config, &error);
    if (rc < 0)
        config_error_format(&error, ret_text, 1024);
    return rc;
}

START_TEST(test_validate)
{
    char text[1024];

    ck_assert_int_eq(validated("redis://h", "", text), 0);
    ck_assert_int_eq(validated("redis://:p4ss@h", "", text), 0);
    ck_assert_int_eq(validated("redis://u:p4ss@h", "", text), 0);
    ck_assert_int_eq(validated("redis://h", "/f", text), 0);
    ck_assert_int_eq(validated("redis://u@h", "/f", text), 0);
    ck_assert_int_eq(validated("memory://", "/f", text), 0);
    ck_assert_int_eq(validated("redis://:p4ss@h", "/f", text), -EINVAL);
    ck_assert_str_eq(text, "backend_password_file: the URL in backend has a password too; "
                           "give one of them");
    ck_assert_int_eq(validated("redis://u@h", "", text), -EINVAL);
    ck_assert_str_eq(text, "backend: the URL has a user but no password, and "
                           "backend_password_file is not set");
}
END_TEST

static void name_append(void *context, const char *option)
{
    strcat(strcat((char *)context, option), " ");
}

static const char *const changes[] = {
    "socket=/tmp/s",
    "socket_mode=0600",
    "socket_group=users",
    "backend=memory://",
    "backend_password_file=/f",
    "prefix=p:",
    "ttl_max=5s",
    "max_wait=5s",
    "retry_max=5s",
    "fence_block=5",
    "handoff_grants_max=5",
    "handoff_time_max=5s",
    "yield_after=0",
    "busy_cache=5ms",
    "waiters_key_max=5",
    "waiters_client_max=5",
    "slow_wait=5s",
    "slow_hold=5s",
    "data_loss=ignore",
    "connect_timeout=5s",
    "requests_max=5",
    "connections_max=5",
    "output_max=65536",
    "idle_timeout=5s",
    "line_timeout=5s",
    "drain_timeout=5s",
    "log_level=debug",
};

static void config_change(struct config *config)
{
    struct config_error error;

    for (size_t i = 0; i < LB_ARRAY_LENGTH(changes); i++)
        ck_assert_int_eq(config_set(config, changes[i], &error), 0);
}

START_TEST(test_diff)
{
    struct config old_config, new_config;
    char names[256] = "";

    config_init_defaults(&old_config);
    config_init_defaults(&new_config);
    ck_assert_uint_eq(config_diff_needs_restart(&old_config, &new_config, name_append, names), 0);
    config_change(&new_config);
    ck_assert_uint_eq(config_diff_needs_restart(&old_config, &new_config, name_append, names), 7);
    ck_assert_str_eq(names, "socket socket_mode socket_group backend backend_password_file prefix "
                            "connect_timeout ");
    ck_assert_uint_eq(config_diff_needs_restart(&old_config, &new_config, NULL, NULL), 7);
}
END_TEST

START_TEST(test_apply_reloadable)
{
    struct config config, changed;

    config_init_defaults(&config);
    config_init_defaults(&changed);
    config_change(&changed);
    config_apply_reloadable(&config, &changed);
    ck_assert_str_eq(config.socket, "/run/lockbroker.sock");
    ck_assert_str_eq(config.prefix, "lockbroker:lock:");
    ck_assert_int_eq(config.connect_timeout_ms, 2000);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
    ck_assert_int_eq(config.max_wait_ms, 5000);
    ck_assert_int_eq(config.retry_max_ms, 5000);
    ck_assert_int_eq(config.fence_block, 5);
    ck_assert_int_eq(config.handoff_grants_max, 5);
    ck_assert_int_eq(config.handoff_time_max_ms, 5000);
    ck_assert_int_eq(config.yield_after_ms, 0);
    ck_assert_int_eq(config.busy_cache_ms, 5);
    ck_assert_int_eq(config.waiters_key_max, 5);
    ck_assert_int_eq(config.waiters_client_max, 5);
    ck_assert_int_eq(config.slow_wait_ms, 5000);
    ck_assert_int_eq(config.slow_hold_ms, 5000);
    ck_assert_int_eq(config.data_loss, CONFIG_LOSS_IGNORE);
    ck_assert_int_eq(config.requests_max, 5);
    ck_assert_int_eq(config.connections_max, 5);
    ck_assert_int_eq(config.output_max_bytes, 65536);
    ck_assert_int_eq(config.idle_timeout_ms, 5000);
    ck_assert_int_eq(config.line_timeout_ms, 5000);
    ck_assert_int_eq(config.drain_timeout_ms, 5000);
    ck_assert_int_eq(config.log_level, CONFIG_LEVEL_DEBUG);
}
END_TEST

START_TEST(test_reserved_keys)
{
    ck_assert(config_key_is_reserved("", "lockbroker:meta:"));
    ck_assert(config_key_is_reserved("", "lockbroker:meta:fence"));
    ck_assert(!config_key_is_reserved("", "lockbroker:meta"));
    ck_assert(!config_key_is_reserved("", "fence"));
    ck_assert(config_key_is_reserved("lock", "broker:meta:fence"));
    ck_assert(!config_key_is_reserved("lock", "broker:lock:a"));
    ck_assert(!config_key_is_reserved("x", "lockbroker:meta:fence"));
    ck_assert(config_key_is_reserved("lockbroker:meta:", ""));
    ck_assert(config_key_is_reserved("lockbroker:meta:x", "y"));
    ck_assert(!config_key_is_reserved("lockbroker:lock:", "lockbroker:meta:fence"));
}
END_TEST

Suite *config_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *tests = tcase_create("config");

    tcase_add_test(tests, test_defaults);
    tcase_add_loop_test(tests, test_promised_ranges, 0, LB_ARRAY_LENGTH(ranges));
    tcase_add_test(tests, test_set);
    tcase_add_loop_test(tests, test_set_wrongly, 0, LB_ARRAY_LENGTH(wrong_sets));
    tcase_add_test(tests, test_long_values_are_cut_in_messages);
    tcase_add_test(tests, test_a_long_value_is_refused_not_cut);
    tcase_add_test(tests, test_flag_errors_name_the_flag);
    tcase_add_test(tests, test_error_is_cut_to_fit);
    tcase_add_test(tests, test_validate);
    tcase_add_test(tests, test_diff);
    tcase_add_test(tests, test_apply_reloadable);
    tcase_add_test(tests, test_reserved_keys);
    suite_add_tcase(suite, tests);
    return suite;
}
