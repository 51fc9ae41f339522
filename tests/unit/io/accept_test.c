// Clients that come through the listening socket, when the kernel has no descriptors for them, or
// they are gone already.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/io/listener.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/rig.h"
#include "tests/unit/io/suites.h"

#define FOREVER -1

static struct listener listener;
static char directory[64];
static char path[128];

static void setup(void)
{
    char problem[LISTENER_PROBLEM_BYTES_MAX];

    rig_setup();
    (void)unsetenv("LISTEN_FDS");
    (void)snprintf(directory, sizeof(directory), "/tmp/lb-accept-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/s", directory);
    ck_assert_int_eq(listener_open(&listener, path, 0600, "", problem), 0);
    ck_assert_int_eq(listener_start(&listener, &rig.loop, &rig.conns), 0);
}

static void teardown(void)
{
    fault_call_fail("", 0, 1, 0);
    listener_stop(&listener);
    rig_teardown();
    listener_close(&listener);
    ck_assert_int_eq(rmdir(directory), 0);
}

static int connect_fd(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

    memcpy(address.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void ask(struct rig_client *client)
{
    rig_forget(client);
    rig_say(client, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(client, "\"ok\":true");
}

START_TEST(a_crowd_is_let_in)
{
    int crowd[70]; // more than are accepted in a turn
    struct rig_client last;

    for (int i = 0; i < 70; i++)
        crowd[i] = connect_fd();
    last = rig_client_of(crowd[69]);
    ask(&last);
    ck_assert_int_eq((int)rig.conns.count, 70);
    for (int i = 0; i < 70; i++)
        close(crowd[i]);
}
END_TEST

static const int shortages[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};

START_TEST(without_descriptors_clients_wait_and_the_others_are_served)
{
    struct rig_client first = rig_client_of(connect_fd());
    struct rig_client second;

    ask(&first);
    fault_call_fail("accept4", shortages[_i], 1, FOREVER);
    second = rig_client_of(connect_fd());
    while (fault_call_left() > -3) // it tries again, and again
        ask(&first);
    ck_assert(listener.is_pause_told);
    ck_assert_int_eq((int)rig.conns.count, 1);

    fault_call_fail("accept4", 0, 1, 0);
    ask(&second);
    ck_assert(!listener.is_pause_told);
    rig_disconnect(&first);
    rig_disconnect(&second);
}
END_TEST

static const int passing[] = {ECONNABORTED, EINTR, EPROTO};

START_TEST(one_that_is_gone_holds_up_nobody)
{
    struct rig_client client;

    fault_call_fail("accept4", passing[_i], 1, 3);
    client = rig_client_of(connect_fd());
    ask(&client);
    ck_assert(!listener.is_pause_told);
    ck_assert_int_eq(fault_call_left(), 0);
    rig_disconnect(&client);
}
END_TEST

START_TEST(a_start_that_fails_is_told)
{
    static struct listener second;

    fault_call_fail("uv_poll_init", EMFILE, 1, 1);
    second.fd = listener.fd;
    ck_assert_int_eq(listener_start(&second, &rig.loop, &rig.conns), -EMFILE);
}
END_TEST

Suite *accept_suite(void)
{
    Suite *suite = suite_create("accept");
    TCase *tcase = tcase_create("accept");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_crowd_is_let_in);
    tcase_add_loop_test(tcase, without_descriptors_clients_wait_and_the_others_are_served, 0, 4);
    tcase_add_loop_test(tcase, one_that_is_gone_holds_up_nobody, 0, 3);
    tcase_add_test(tcase, a_start_that_fails_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
