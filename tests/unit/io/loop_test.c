// The loop's table of descriptors and its threads: what it takes early, so that it need not be
// there later.
#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/io/loop.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/suites.h"

#define HIGH_DESCRIPTOR 1000

static uv_loop_t loop;

static void setup(void)
{
    ck_assert_int_eq(loop_init(&loop), 0);
}

static void teardown(void)
{
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(memory_for_the_loop_may_be_missing)
{
    uv_loop_t other;
    int r;

    fault_memory_fail(1, true);
    r = uv_loop_init(&other);
    fault_memory_fail(0, false);
    ck_assert_int_eq(r, UV_ENOMEM);
}
END_TEST

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    ck_abort_msg("status %d, events %d", status, events);
}

START_TEST(a_high_descriptor_needs_no_memory)
{
    const void *table = loop.watchers;
    uv_poll_t poll;
    bool has_failed;
    int r;
    int event = eventfd(0, EFD_CLOEXEC);
    int fd = fcntl(event, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);

    ck_assert_int_ge(fd, HIGH_DESCRIPTOR);
    fault_memory_fail(1, true);
    r = uv_poll_init(&loop, &poll, fd);
    if (r == 0)
        r = uv_poll_start(&poll, UV_READABLE, on_readable);
    has_failed = fault_memory_has_failed();
    fault_memory_fail(0, false);
    ck_assert_int_eq(r, 0);
    ck_assert(!has_failed);
    ck_assert_ptr_eq(loop.watchers, table);
    uv_close((uv_handle_t *)&poll, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)close(fd);
    (void)close(event);
}
END_TEST

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    (void)request;
    ck_assert_int_eq(status, 0);
    uv_freeaddrinfo(list);
}

START_TEST(threads_are_there_before_the_first_name)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    uv_getaddrinfo_t request;

    ck_assert_int_eq(loop_start_threads(&loop), 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_getaddrinfo(&loop, &request, on_resolved, "127.0.0.1", NULL, &hints), 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
}
END_TEST

Suite *loop_suite(void)
{
    Suite *suite = suite_create("loop");
    TCase *tests = tcase_create("loop");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, memory_for_the_loop_may_be_missing);
    tcase_add_test(tests, a_high_descriptor_needs_no_memory);
    tcase_add_test(tests, threads_are_there_before_the_first_name);
    suite_add_tcase(suite, tests);
    return suite;
}
