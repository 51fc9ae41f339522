// Each allocation of a connection's life fails once. Whatever it is, the program gets an error or
// loses this one connection; nothing else happens, and what was granted is given back.
//
// The binary is linked with --wrap for malloc and calloc. Only this file's single thread is
// counted, and its assertions, which allocate too, stand outside of the counted part.
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "tests/unit/client/suites.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool is_armed;
static long countdown;

static bool alloc_fails(void)
{
    return is_armed && countdown-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fails() ? NULL : __real_calloc(count, size);
}

LB_PRINTF(2, 3)
static void answer(int fd, const char *format, ...)
{
    char line[256];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    (void)send(fd, line, (size_t)length, MSG_NOSIGNAL);
}

// An acquire, half a notice, the other half, a check that is due at once, and the return. Returns
// the first error.
static int live(struct lb_client *client, int far)
{
    struct lb_grant *grant;
    struct lb_event event;
    uint64_t call;
    int r = lb_acquire_start(client, "k", NULL, &call);

    if (r != 0)
        return r;
    (void)lb_dispatch(client);
    answer(far,
           "{\"id\":%" PRId64 ",\"ok\":true,\"fence\":7,\"ttl_ms\":600000,\"deadline_ms\":%" PRId64
           "}\n{\"event\":\"suspect\",\"key\":\"k\",\"fe",
           (int64_t)call, client_now_ms() + 60000);
    (void)lb_dispatch(client);
    answer(far, "nce\":7,\"deadline_ms\":1}\n{\"id\":%" PRId64 ",\"ok\":true,\"held\":true}\n",
           (int64_t)call + 1);
    (void)lb_dispatch(client);
    if (!lb_next_event(client, &event) || event.kind != LB_EVENT_ANSWER || event.result != 0)
        return client->error ? client->error : -EIO;
    grant = event.grant;
    lb_drop(grant);
    return lb_dispatch(client);
}

// One life in which the allocation after `count` good ones fails. False when none was left to fail.
static bool live_without(long count, int *ret_result)
{
    struct lb_client *client;
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    countdown = count;
    is_armed = true;
    *ret_result = client_new(fds[0], &client);
    if (*ret_result == 0) {
        *ret_result = live(client, fds[1]);
        lb_close(client);
    } else {
        close(fds[0]);
    }
    is_armed = false;
    close(fds[1]);
    return countdown < 0;
}

START_TEST(each_allocation_fails_once)
{
    int result = 0;
    long count = 0;

    while (live_without(count, &result)) {
        // A check that could not be asked is asked later: no error, and in this script an answer
        // that nobody asked for.
        ck_assert_msg(result == -ENOMEM || result == -EPROTO || result == 0, "%ld: %d", count,
                      result);
        count++;
    }
    ck_assert_int_eq(result, 0);
    ck_assert_int_gt(count, 5);
}
END_TEST

Suite *alloc_suite(void)
{
    Suite *suite = suite_create("client/alloc");
    TCase *tcase = tcase_create("alloc");

    tcase_add_test(tcase, each_allocation_fails_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
