// The configuration in force: the file, over it the assignments in their order, over both the
// flags.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/io/launch.h"
#include "tests/unit/io/suites.h"

static char path[64];
static struct launch launch;
static struct config config;
static struct config_error error;

static void setup(void)
{
    static const char text[] = "[lockbroker]\nttl_max = 10s\nmax_wait = 11s\n"
                               "backend = memory://\nsocket = /tmp/file\n";
    int fd;

    (void)snprintf(path, sizeof(path), "/tmp/lb-launch-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    launch = (struct launch){.config_path = path};
}

// One more --set.
static void assign(const char *text)
{
    static char texts[3][40];
    static char *assignments[3];
    int i = launch.assignments_count++;

    (void)snprintf(texts[i], sizeof(texts[i]), "%s", text);
    assignments[i] = texts[i];
    launch.assignments = assignments;
}

static void teardown(void)
{
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(what_is_said_last_and_closest_wins)
{
    assign("ttl_max=12s");
    assign("ttl_max=13s");
    assign("socket=/tmp/set");
    launch.socket = "/tmp/flag";
    ck_assert_int_eq(launch_config(&launch, &config, &error), 0);
    ck_assert_int_eq((int)config.ttl_max_ms, 13000);
    ck_assert_int_eq((int)config.max_wait_ms, 11000);
    ck_assert_str_eq(config.socket, "/tmp/flag");
    ck_assert_str_eq(config.backend, "memory://");
}
END_TEST

START_TEST(the_first_mistake_ends_it_and_nothing_is_changed)
{
    ck_assert_int_eq(launch_config(&launch, &config, &error), 0);
    assign("ttl_max=12s");
    assign("ttl_maxx=13s");
    assign("nonsense=1");
    launch.socket = "/tmp/flag";
    ck_assert_int_lt(launch_config(&launch, &config, &error), 0);
    ck_assert_ptr_nonnull(strstr(error.message, "ttl_max"));
    ck_assert_int_eq((int)config.ttl_max_ms, 10000);
    ck_assert_str_eq(config.socket, "/tmp/file");

    launch.assignments_count = 0;
    launch.socket = "relative";
    launch.backend = "gopher://x";
    ck_assert_int_lt(launch_config(&launch, &config, &error), 0);
    ck_assert_str_eq(error.place, "--socket");
}
END_TEST

START_TEST(a_file_that_was_named_must_be_there)
{
    launch.config_path = "/nonexistent/file";
    ck_assert_int_eq(launch_config(&launch, &config, &error), -ENOENT);
}
END_TEST

START_TEST(the_group_is_looked_up_before_anything_starts)
{
    assign("socket_group=daemon");
    ck_assert_int_eq(launch_config(&launch, &config, &error), 0);
    ck_assert_int_eq(launch_check(&config, &error), 0);
    assign("socket_group=no-such-group");
    ck_assert_int_eq(launch_config(&launch, &config, &error), 0);
    ck_assert_int_eq(launch_check(&config, &error), -ENOENT);
    ck_assert_str_eq(error.option, "socket_group");
    ck_assert_str_eq(error.message, "there is no group \"no-such-group\"");
}
END_TEST

Suite *launch_suite(void)
{
    Suite *suite = suite_create("launch");
    TCase *tcase = tcase_create("launch");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_is_said_last_and_closest_wins);
    tcase_add_test(tcase, the_first_mistake_ends_it_and_nothing_is_changed);
    tcase_add_test(tcase, a_file_that_was_named_must_be_there);
    tcase_add_test(tcase, the_group_is_looked_up_before_anything_starts);
    suite_add_tcase(suite, tcase);
    return suite;
}
