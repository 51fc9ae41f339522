// Connections that end: halfway through what is written to them, by what the kernel refuses, and
// without memory.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/io/fault.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/rig.h"
#include "tests/unit/io/suites.h"

#define PING    "{\"id\":1,\"op\":\"ping\"}"
#define ACQUIRE "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}"

static struct rig_client client;
static struct rig_client other;

static void setup(void)
{
    rig_setup();
    client = rig_connect();
    other = rig_connect();
}

static void teardown(void)
{
    fault_call_fail("", 0, 1, 0);
    rig_disconnect(&client);
    rig_disconnect(&other);
    rig_teardown();
}

static void send_many(struct rig_client *to, const char *op, int count)
{
    char *text = calloc((size_t)count, 32);
    char *end = text;

    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < count; i++)
        end += sprintf(end, "{\"id\":%d,\"op\":\"%s\"}\n", i, op);
    ck_assert_uint_eq(rig_send(to, text, strlen(text)), strlen(text));
    free(text);
}

static void acquire(struct rig_client *holder)
{
    rig_say(holder, ACQUIRE);
    rig_hear(holder, "\"ok\":true");
    rig_forget(holder);
}

// A reply that was asked for before the end of the client's stream is for reading after it.
START_TEST(what_was_asked_before_the_end_is_answered_whole)
{
    send_many(&client, "stats", 250);
    ck_assert_int_eq(shutdown(client.fd, SHUT_WR), 0);
    for (int i = 0; i < 20; i++)
        rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 2);
    rig_hear_end(&client);
    ck_assert_int_eq(rig_lines(&client), 250);
    rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 1);
}
END_TEST

START_TEST(nobody_is_waited_for_who_does_not_read_at_the_end)
{
    send_many(&client, "stats", 250);
    ck_assert_int_eq(shutdown(client.fd, SHUT_WR), 0);
    while (rig.conns.count > 1)
        rig_turn();
    rig_say(&other, PING);
    rig_hear(&other, "\"ok\":true");
}
END_TEST

START_TEST(one_that_goes_before_it_has_read_is_closed_at_once)
{
    send_many(&client, "stats", 250);
    ck_assert_int_eq(shutdown(client.fd, SHUT_WR), 0);
    for (int i = 0; i < 20; i++)
        rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 2);
    rig_disconnect(&client);
    rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 1);
}
END_TEST

// A client that cannot be written to has ended: its lock goes to the next one.
START_TEST(a_write_that_fails_is_the_clients_end)
{
    acquire(&client);
    rig_say(&other, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"wait_ms\":-1}");
    rig_turn();
    rig_say(&client, PING);
    fault_call_fail("uv_try_write", EPIPE, 1, 1);
    rig_hear_end(&client);
    ck_assert_int_eq(rig_lines(&client), 0);
    rig_hear(&other, "\"ok\":true");
}
END_TEST

START_TEST(so_is_one_that_fails_in_the_midst_of_its_requests)
{
    send_many(&client, "stats", 120);
    fault_call_fail("uv_try_write", EPIPE, 1, 1);
    rig_hear_end(&client);
    ck_assert_int_eq(rig_lines(&client), 0);
}
END_TEST

START_TEST(so_is_one_that_cannot_be_finished_later)
{
    acquire(&client);
    rig_say(&other, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"wait_ms\":-1}");
    rig_turn();
    fault_call_fail("uv_write", ENOMEM, 1, 1);
    send_many(&client, "stats", 250); // more than the socket takes
    rig_hear(&other, "\"ok\":true");
    ck_assert_int_eq(fault_call_left(), 0);
    rig_hear_end(&client);
}
END_TEST

static const char *const at_accept[] = {"getsockopt", "uv_pipe_open", "uv_read_start"};

START_TEST(a_client_that_cannot_be_taken_in_is_closed)
{
    struct rig_client third;

    fault_call_fail(at_accept[_i], ENOMEM, 1, 1);
    third = rig_connect();
    rig_hear_end(&third);
    ck_assert_uint_eq(third.length, 0);
    rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 2);
    rig_disconnect(&third);
    third = rig_connect();
    rig_say(&third, PING);
    rig_hear(&third, "\"ok\":true");
    rig_disconnect(&third);
}
END_TEST

START_TEST(one_that_cannot_be_read_any_further_is_cut_off_and_its_key_kept)
{
    acquire(&client);
    fault_call_fail("uv_read_start", ENOMEM, 1, 1);
    send_many(&client, "ping", 300); // more than one turn's
    rig_hear_end(&client);
    ck_assert_int_eq(fault_call_left(), 0);
    rig_say(&other, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&other, "\"error\":\"busy\"");
}
END_TEST

// A higher output_max is for new connections. Old ones are cut off where they would have been.
START_TEST(the_most_that_may_be_unread_is_settled_at_the_beginning)
{
    rig_disconnect(&other);
    rig.conns.limits.output_max_bytes = 4096;
    other = rig_connect();
    acquire(&other);
    rig.conns.limits.output_max_bytes = 64 << 20;
    send_many(&other, "stats", 1500);
    while (rig.conns.count > 1)
        rig_turn();
    ck_assert_int_eq((int)rig.conns.overflows, 1);
    rig_say(&client, ACQUIRE);
    rig_hear(&client, "\"error\":\"busy\"");
}
END_TEST

START_TEST(one_of_several_with_something_to_be_written_is_cut_off)
{
    struct notice notice = {.kind = NOTICE_LOST, .key = "k", .owner = "o", .reason = "expired"};
    struct rig_client third = rig_connect();

    rig_turn();
    for (uint64_t id = 1; id <= 3; id++)
        conn_notify(conn_table_find(&rig.conns, id), &notice);
    conn_cut(conn_table_find(&rig.conns, 2), "test");
    rig_hear_end(&other);
    rig_hear(&client, "\"event\":\"lost\"");
    rig_hear(&third, "\"event\":\"lost\"");
    rig_disconnect(&third);
}
END_TEST

// A read that fills the buffer, from a client that is behind with reading: nothing of it is lost.
START_TEST(a_full_read_of_a_client_that_is_behind_is_kept)
{
    rig.conns.limits.output_max_bytes = 65536;
    send_many(&client, "stats", 3000);
    for (int i = 0; i < 20; i++)
        rig_turn();
    rig_hear(&client, "{\"id\":2999,\"ok\":true");
    ck_assert_int_eq(rig_lines(&client), 3000);
}
END_TEST

// Wherever in the turn its time is over, all are answered, and in order.
START_TEST(a_turn_may_end_anywhere)
{
    for (int at = 1; at < 400; at += 7) {
        struct rig_client crowd[3];

        for (int i = 0; i < 3; i++) {
            crowd[i] = rig_connect();
            send_many(&crowd[i], "ping", 300);
        }
        fault_clock_jump_at(at, 6);
        for (int i = 0; i < 3; i++) {
            rig_hear(&crowd[i], "{\"id\":299,\"ok\":true");
            ck_assert_int_eq(rig_lines(&crowd[i]), 300);
        }
        for (int i = 0; i < 3; i++)
            rig_disconnect(&crowd[i]);
        rig_turn();
    }
}
END_TEST

// Without memory a client is cut off, and the others are served.
START_TEST(each_allocation_of_a_flood_may_fail)
{
    bool has_failed = true;

    for (int count = 1; has_failed; count++) {
        struct rig_client flood = rig_connect();

        send_many(&flood, "ping", 300);
        fault_memory_fail(count, false);
        for (int i = 0; i < 5; i++)
            rig_turn();
        has_failed = fault_memory_has_failed();
        fault_memory_fail(0, false);
        rig_read(&flood);
        ck_assert(has_failed || rig_lines(&flood) == 300);
        rig_disconnect(&flood);
        rig_forget(&other);
        rig_say(&other, PING);
        rig_hear(&other, "\"ok\":true");
        ck_assert_int_lt(count, 2000);
    }
}
END_TEST

// What was due when the machine slept is seen to when anything begins to be waited for.
START_TEST(what_is_overdue_is_not_put_off)
{
    rig_say(&other, PING);
    rig_hear(&other, "\"ok\":true");
    fault_clock_jump(40000);
    ck_assert_uint_eq(rig_send(&other, "{", 1), 1);
    rig_hear_end(&client); // it never spoke
    rig_say(&other, "}");
    rig_hear(&other, "bad_field");
}
END_TEST

Suite *conn_end_suite(void)
{
    Suite *suite = suite_create("conn_end");
    TCase *tcase = tcase_create("conn_end");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_was_asked_before_the_end_is_answered_whole);
    tcase_add_test(tcase, nobody_is_waited_for_who_does_not_read_at_the_end);
    tcase_add_test(tcase, one_that_goes_before_it_has_read_is_closed_at_once);
    tcase_add_test(tcase, a_write_that_fails_is_the_clients_end);
    tcase_add_test(tcase, so_is_one_that_fails_in_the_midst_of_its_requests);
    tcase_add_test(tcase, so_is_one_that_cannot_be_finished_later);
    tcase_add_loop_test(tcase, a_client_that_cannot_be_taken_in_is_closed, 0, 3);
    tcase_add_test(tcase, one_that_cannot_be_read_any_further_is_cut_off_and_its_key_kept);
    tcase_add_test(tcase, the_most_that_may_be_unread_is_settled_at_the_beginning);
    tcase_add_test(tcase, one_of_several_with_something_to_be_written_is_cut_off);
    tcase_add_test(tcase, a_full_read_of_a_client_that_is_behind_is_kept);
    tcase_add_test(tcase, a_turn_may_end_anywhere);
    tcase_add_test(tcase, each_allocation_of_a_flood_may_fail);
    tcase_add_test(tcase, what_is_overdue_is_not_put_off);
    suite_add_tcase(suite, tcase);

    TCase *bare = tcase_create("bare");

    suite_add_tcase(suite, bare);
    return suite;
}
