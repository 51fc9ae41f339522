// A service manager that listens, one that does not, and none.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/io/notify.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/suites.h"

static uv_loop_t loop;
static struct notifier notifier;
static int manager;
static char name[64];

static void manager_listen(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length;

    (void)snprintf(name, sizeof(name), "@lb-notify-%d", (int)getpid());
    memcpy(address.sun_path, name, strlen(name) + 1);
    address.sun_path[0] = '\0';
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(manager, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
}

static void setup(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    manager_listen();
}

static void teardown(void)
{
    notifier_close(&notifier);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    close(manager);
}

// The next text, or "" when there is none.
static const char *heard(void)
{
    static char text[256];
    ssize_t length = recv(manager, text, sizeof(text) - 1, 0);

    text[length < 0 ? 0 : length] = '\0';
    return text;
}

START_TEST(the_words_are_told)
{
    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    notify_ready(&notifier);
    ck_assert_str_eq(heard(), "READY=1");
    notify_reloading(&notifier);
    ck_assert_ptr_nonnull(strstr(heard(), "RELOADING=1\nMONOTONIC_USEC="));
    notify_watchdog(&notifier);
    ck_assert_str_eq(heard(), "WATCHDOG=1");
    notify_stopping(&notifier);
    ck_assert_str_eq(heard(), "STOPPING=1");
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(a_status_is_told_once_and_not_at_once)
{
    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    for (size_t i = 0; i <= 1000; i++)
        notify_status(&notifier, true, i);
    ck_assert_str_eq(heard(), "");
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(heard(), "STATUS=backend up, 1000 locks");
    notify_status(&notifier, true, 1000);
    ck_assert(!uv_loop_alive(&loop));
}
END_TEST

START_TEST(a_busy_manager_is_not_waited_for)
{
    int words = 0;
    const char *text;

    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    for (int i = 0; i < 3000; i++) // far more than its queue takes
        notify_watchdog(&notifier);
    notify_reloading(&notifier);
    notify_ready(&notifier);
    ck_assert(uv_loop_alive(&loop));
    while (*(text = heard()))
        words += strcmp(text, "WATCHDOG=1") != 0;
    ck_assert_int_eq(words, 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_ptr_nonnull(strstr(heard(), "RELOADING=1"));
    ck_assert_str_eq(heard(), "READY=1");
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(of_many_words_untold_the_last_are_kept)
{
    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    for (int i = 0; i < 3000; i++)
        notify_watchdog(&notifier);
    for (int i = 0; i < 30; i++)
        notify_ready(&notifier);
    notify_stopping(&notifier);
    while (*heard())
        ;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 1; i < NOTIFY_TEXTS_MAX; i++)
        ck_assert_str_eq(heard(), "READY=1");
    ck_assert_str_eq(heard(), "STOPPING=1");
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(without_a_manager_nothing_happens)
{
    ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);
    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    notify_ready(&notifier);
    notify_status(&notifier, true, 1);
    notify_watchdog(&notifier);
    ck_assert(!uv_loop_alive(&loop));
}
END_TEST

START_TEST(the_watchdog_is_fed_twice_as_often_as_it_wants)
{
    char pid[16];

    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    ck_assert_uint_eq(notify_watchdog_ms(), 0);
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    ck_assert_int_eq(setenv("WATCHDOG_PID", pid, 1), 0);
    ck_assert_int_eq(setenv("WATCHDOG_USEC", "10000000", 1), 0);
    ck_assert_uint_eq(notify_watchdog_ms(), 5000);
    ck_assert_int_eq(setenv("WATCHDOG_USEC", "1500", 1), 0);
    ck_assert_uint_eq(notify_watchdog_ms(), 1);
    ck_assert_int_eq(setenv("WATCHDOG_PID", "1", 1), 0);
    ck_assert_uint_eq(notify_watchdog_ms(), 0);
}
END_TEST

// Nobody to be told, as far as these names go.
START_TEST(a_name_that_is_no_address_is_no_manager)
{
    static const char *const names[] = {"", "@", "relative"};
    char long_name[200];

    memset(long_name, 'x', sizeof(long_name));
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = '\0';
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", i < 3 ? names[i] : long_name, 1), 0);
        ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
        notify_ready(&notifier);
        ck_assert(!uv_loop_alive(&loop));
        if (i < 3)
            notifier_close(&notifier);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
}
END_TEST

START_TEST(without_a_socket_the_start_fails)
{
    fault_call_fail("socket", EMFILE, 1, 1);
    ck_assert_int_eq(notifier_init(&notifier, &loop), -EMFILE);
}
END_TEST

// A signal that interrupts, or buffers that are full, put a word off; a manager that is gone does
// not listen later either.
START_TEST(a_word_is_told_again_only_when_that_may_help)
{
    static const int worth[] = {EAGAIN, ENOBUFS, EINTR};

    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    for (int i = 0; i < 3; i++) {
        fault_call_fail("sendto", worth[i], 1, 2);
        notify_ready(&notifier);
        ck_assert_str_eq(heard(), "");
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_str_eq(heard(), "READY=1");
        ck_assert_str_eq(heard(), "");
    }
    fault_call_fail("sendto", ECONNREFUSED, 1, 1);
    notify_ready(&notifier);
    ck_assert(!uv_loop_alive(&loop));
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(a_status_is_told_again_and_after_the_words)
{
    ck_assert_int_eq(notifier_init(&notifier, &loop), 0);
    notify_status(&notifier, false, 2);
    fault_call_fail("sendto", EAGAIN, 1, 3);
    notify_stopping(&notifier);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(fault_call_left(), 0);
    ck_assert_str_eq(heard(), "STOPPING=1");
    ck_assert_str_eq(heard(), "STATUS=backend down, 2 locks");
    notify_status(&notifier, true, 2);
    fault_call_fail("sendto", EAGAIN, 1, 1);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(heard(), "STATUS=backend up, 2 locks");
    ck_assert_str_eq(heard(), "");
}
END_TEST

Suite *notify_suite(void)
{
    Suite *suite = suite_create("notify");
    TCase *tcase = tcase_create("notify");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_words_are_told);
    tcase_add_test(tcase, a_status_is_told_once_and_not_at_once);
    tcase_add_test(tcase, a_busy_manager_is_not_waited_for);
    tcase_add_test(tcase, of_many_words_untold_the_last_are_kept);
    tcase_add_test(tcase, without_a_manager_nothing_happens);
    tcase_add_test(tcase, a_name_that_is_no_address_is_no_manager);
    tcase_add_test(tcase, without_a_socket_the_start_fails);
    tcase_add_test(tcase, a_word_is_told_again_only_when_that_may_help);
    tcase_add_test(tcase, a_status_is_told_again_and_after_the_words);
    tcase_add_test(tcase, the_watchdog_is_fed_twice_as_often_as_it_wants);
    suite_add_tcase(suite, tcase);
    return suite;
}
