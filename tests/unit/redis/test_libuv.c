// Calls of libuv that fail, or take nothing, while the link is made and used: by the linker's
// --wrap.
#include <string.h>
#include <uv.h>

#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

#define FAULTS_MAX 2

// The faults of one test, each for the next call of that name.
static struct {
    const char *call;
    int error;
} faults[FAULTS_MAX];

static struct server server;
static struct rig rig;

static void fault_add(const char *call, int error)
{
    for (int i = 0; i < FAULTS_MAX; i++) {
        if (!faults[i].call) {
            faults[i].call = call;
            faults[i].error = error;
            return;
        }
    }
    ck_abort_msg("too many faults");
}

static bool faults_are_over(void)
{
    return !faults[0].call && !faults[1].call;
}

// 0, or the error with which this call is to fail.
static int fault_take(const char *call)
{
    for (int i = 0; i < FAULTS_MAX && rig_is_inside; i++) {
        if (faults[i].call && strcmp(faults[i].call, call) == 0) {
            faults[i].call = NULL;
            return faults[i].error;
        }
    }
    return 0;
}

#define WRAP(call, parameters, arguments)                                                          \
    int __real_##call parameters;                                                                  \
    int __wrap_##call parameters;                                                                  \
    int __wrap_##call parameters                                                                   \
    {                                                                                              \
        int error = fault_take(#call);                                                             \
        return error ? error : __real_##call arguments;                                            \
    }

WRAP(uv_pipe_init, (uv_loop_t * loop, uv_pipe_t *pipe, int ipc), (loop, pipe, ipc))
WRAP(uv_read_start, (uv_stream_t * stream, uv_alloc_cb on_alloc, uv_read_cb on_read),
     (stream, on_alloc, on_read))
WRAP(uv_tcp_connect,
     (uv_connect_t * request, uv_tcp_t *tcp, const struct sockaddr *address, uv_connect_cb done),
     (request, tcp, address, done))
WRAP(uv_tcp_init, (uv_loop_t * loop, uv_tcp_t *tcp), (loop, tcp))
WRAP(uv_try_write, (uv_stream_t * stream, const uv_buf_t *bufs, unsigned count),
     (stream, bufs, count))
WRAP(uv_write,
     (uv_write_t * write, uv_stream_t *stream, const uv_buf_t *bufs, unsigned count,
      uv_write_cb done),
     (write, stream, bufs, count, done))

static void setup(void)
{
    server_start(&server, true, NULL);
    rig_init(&rig, &server);
    memset(faults, 0, sizeof(faults));
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
}

static const char *const at_connect[] = {"uv_pipe_init", "uv_read_start", "uv_tcp_init",
                                         "uv_tcp_connect", "uv_read_start"};

// Two of the Unix socket, three of TCP.
START_TEST(test_what_fails_once_is_tried_again)
{
    if (_i >= 2)
        rig_use_tcp(&rig, "127.0.0.1", server.port);
    fault_add(at_connect[_i], UV_ENOMEM);
    rig_open(&rig);
    rig_await_down(&rig, 1);
    ck_assert_int_eq(rig.ups, 0);
    rig_await_up(&rig, 1);
    ck_assert(faults_are_over());
    ck_assert_int_eq(rig.downs, 1);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}
END_TEST

START_TEST(test_a_socket_that_takes_nothing_yet)
{
    rig_open_up(&rig);
    fault_add("uv_try_write", UV_EAGAIN);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert(faults_are_over());
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 1);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

// The time of the operation is what tells: nobody answers what was never sent.
static void assert_not_sent(void)
{
    rig.timeout_ms = 300;
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_NOT_SENT);
    ck_assert(faults_are_over());
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
    rig.timeout_ms = RIG_TIMEOUT_MS;
    rig_await_up(&rig, 2);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}

START_TEST(test_a_write_that_fails)
{
    rig_open_up(&rig);
    fault_add("uv_try_write", UV_EPIPE);
    assert_not_sent();
}
END_TEST

START_TEST(test_a_rest_that_cannot_be_written)
{
    rig_open_up(&rig);
    fault_add("uv_try_write", UV_EAGAIN);
    fault_add("uv_write", UV_ENOMEM);
    assert_not_sent();
}
END_TEST

START_TEST(test_closed_is_closed)
{
    struct backend_op op = {.kind = BACKEND_ACQUIRE,
                            .op_id = 1,
                            .key = "a",
                            .serial = 1,
                            .ttl_ms = 60000,
                            .timeout_ms = 1000,
                            .not_after_ms = LB_NONE};

    rig_open_up(&rig);
    uplink_close(rig.uplink);
    uplink_submit(rig.uplink, &op); // it would be an outcome of no operation of the rig's
    uplink_flush(rig.uplink);
    uplink_close(rig.uplink);
    rig.uplink = NULL;
}
END_TEST

Suite *libuv_suite(void)
{
    Suite *suite = suite_create("redis/libuv");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_what_fails_once_is_tried_again, 0, 5);
    tcase_add_test(tcase, test_a_socket_that_takes_nothing_yet);
    tcase_add_test(tcase, test_a_write_that_fails);
    tcase_add_test(tcase, test_a_rest_that_cannot_be_written);
    tcase_add_test(tcase, test_closed_is_closed);
    suite_add_tcase(suite, tcase);
    return suite;
}
