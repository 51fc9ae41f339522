// The pump: what a pause of the process may not do, and memory that runs out at any place.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/rig.h"
#include "tests/unit/io/suites.h"

#define ACQUIRE "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"ttl_ms\":3000}"

START_TEST(what_ran_out_in_a_pause_is_told_before_anything_else)
{
    struct rig_client client = rig_connect();

    rig_say(&client, ACQUIRE);
    rig_hear(&client, "\"ok\":true");
    rig_forget(&client);
    fault_clock_jump(10000);
    rig_say(&client, "{\"id\":2,\"op\":\"check\",\"key\":\"k\"}");
    rig_hear(&client, "\"id\":2");
    ck_assert_int_eq(strncmp(client.text, "{\"event\":\"lost\"", 15), 0);
    ck_assert(rig_heard(&client, "\"held\":false"));
    rig_disconnect(&client);
}
END_TEST

START_TEST(the_timer_tells_without_any_event)
{
    struct rig_client client = rig_connect();

    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"max_hold_ms\":300}");
    rig_hear(&client, "\"ok\":true");
    rig_hear(&client, "\"reason\":\"max_hold\"");
    rig_disconnect(&client);
}
END_TEST

static int64_t number_after(const struct rig_client *client, const char *name)
{
    const char *at = strstr(client->text, name);

    ck_assert_msg(at != NULL, "no %s in %s", name, client->text);
    return strtoll(at + strlen(name), NULL, 10);
}

// How often the clock is looked at between the request and the reply's way into the buffer.
static int reads_of_one_acquire(void)
{
    struct rig_client client = rig_connect();
    int before;

    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"other\",\"ttl_ms\":3000}");
    before = fault_clock_reads();
    rig_hear(&client, "\"ok\":true");
    rig_disconnect(&client);
    rig_turn();
    return fault_clock_reads() - before;
}

// The process stops for long at every look at the clock in turn: whenever it happens, the grant
// that is told is one that still holds.
START_TEST(a_grant_is_never_told_too_late)
{
    int reads = reads_of_one_acquire();

    ck_assert_int_gt(reads, 3);
    for (int at = 1; at <= reads; at++) {
        struct rig_client client = rig_connect();
        int64_t left_ms;

        rig_say(&client, ACQUIRE);
        fault_clock_jump_at(at, 2800);
        rig_hear(&client, "\"id\":1,");
        if (rig_heard(&client, "\"ok\":true")) {
            left_ms = number_after(&client, "\"deadline_ms\":") - clock_now_ms();
            // Unless it stopped after the reply was made: then only the client can tell.
            ck_assert(left_ms > 0 || rig_heard(&client, "\"event\":\"lost\"") ||
                      number_after(&client, "\"valid_ms\":") > 300);
            ck_assert_int_ge(number_after(&client, "\"valid_ms\":"), 300);
        }
        fault_clock_jump_at(0, 0);
        rig_disconnect(&client);
        rig_turn();
    }
    struct rig_client client = rig_connect();

    rig_say(&client, "{\"id\":1,\"op\":\"stats\"}");
    rig_hear(&client, "\"ok\":true");
    ck_assert_int_ge(number_after(&client, "\"grants_stale\":"), 1);
    rig_disconnect(&client);
}
END_TEST

// What a few clients do in their lives, whatever becomes of their requests.
static void scenario(void)
{
    struct rig_client clients[3];

    for (int i = 0; i < 3; i++) {
        clients[i] = rig_connect();
        (void)rig_send(&clients[i], ACQUIRE "\n", strlen(ACQUIRE) + 1);
        (void)rig_send(&clients[i], "{\"id\":2,\"op\":\"acq", 17);
        rig_turn();
    }
    for (int i = 0; i < 3; i++) {
        static const char rest[] = "uire\",\"key\":\"k\",\"owner\":\"o\",\"wait_ms\":-1}\n"
                                   "{\"id\":3,\"op\":\"list\"}\n{\"id\":4,\"op\":\"stats\"}\n"
                                   "{\"id\":5,\"op\":\"release\",\"key\":\"k\"}\n";

        (void)rig_send(&clients[i], rest, sizeof(rest) - 1);
        rig_turn();
    }
    for (int i = 0; i < 3; i++) {
        rig_disconnect(&clients[i]);
        rig_turn();
    }
}

static void assert_all_is_well(void)
{
    struct rig_client client;

    // Keys of those whom the broker had to cut off are kept for a while.
    fault_clock_jump(60000);
    rig_turn();
    broker_check(rig.broker);
    ck_assert_uint_eq(broker_kept_count(rig.broker), 0);
    ck_assert_int_eq((int)rig.conns.count, 0);
    ck_assert_uint_eq(rig.pump.outcomes_due, 0);
    client = rig_connect();
    rig_say(&client, ACQUIRE);
    rig_hear(&client, "\"ok\":true");
    rig_disconnect(&client);
    rig_turn();
}

START_TEST(one_allocation_that_fails_costs_one_client_at_most)
{
    bool has_failed = true;

    for (int count = 1; has_failed; count++) {
        fault_memory_fail(count, false);
        scenario();
        has_failed = fault_memory_has_failed();
        fault_memory_fail(0, false);
        assert_all_is_well();
        ck_assert_int_lt(count, 5000);
    }
}
END_TEST

START_TEST(memory_that_is_gone_for_a_time)
{
    for (int count = 1; count < 120; count += 3) {
        struct rig_client client = rig_connect();

        rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"mine\"}");
        rig_hear(&client, "\"ok\":true");
        fault_memory_fail(count, true);
        for (int i = 0; i < 10; i++)
            rig_turn();
        (void)rig_send(&client, "{\"id\":2,\"op\":\"list\"}\n{\"id\":3,", 27);
        for (int i = 0; i < 10; i++)
            rig_turn();
        fault_memory_fail(0, false);
        rig_disconnect(&client);
        rig_turn();
        assert_all_is_well();
    }
}
END_TEST

START_TEST(a_queue_that_cannot_grow_stops_and_goes_on)
{
    struct rig_client client = rig_connect();
    struct rig_client second = rig_connect();

    rig_say(&client, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&client, "\"ok\":true");
    rig.pump.outcomes_due += 5000; // as with so many operations on their way
    fault_memory_fail(1, true);

    struct event event = {.kind = EVENT_TIME};
    bool handled = pump_submit(&rig.pump, &event);

    (void)rig_send(&second, "{\"id\":1,\"op\":\"ping\"}\n", 21);
    rig_turn();
    fault_memory_fail(0, false);
    ck_assert(!handled);
    ck_assert(pump_submit(&rig.pump, &event));
    rig_hear_end(&second);
    rig_say(&client, "{\"id\":2,\"op\":\"ping\"}");
    rig_hear(&client, "\"id\":2,\"ok\":true");
    rig.pump.outcomes_due -= 5000;
    rig_disconnect(&client);
    rig_disconnect(&second);
    rig_turn();
    ck_assert_int_eq((int)rig.conns.count, 0);
}
END_TEST

// What is due, and what waits, is not forgotten while there is no memory to step it.
START_TEST(what_ran_out_without_memory_is_told_later)
{
    struct rig_client client = rig_connect();

    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"max_hold_ms\":1000}");
    rig_hear(&client, "\"ok\":true");
    rig_forget(&client);
    rig.pump.outcomes_due += 5000; // as with so many operations on their way
    fault_memory_fail(1, true);    // that of Check's assertions, too
    fault_clock_jump(2000);
    pump_run(&rig.pump);
    rig_read(&client);

    struct event up = {.kind = EVENT_BACKEND_UP, .facts.role = "memory"};
    struct event time = {.kind = EVENT_TIME};

    pump_post(&rig.pump, &up);

    bool handled = pump_submit(&rig.pump, &time);
    size_t waiting = rig.pump.inbox.count;

    fault_memory_fail(0, false);
    ck_assert_uint_eq(client.length, 0);
    ck_assert(!handled);
    ck_assert_uint_eq(waiting, 1);
    rig_hear(&client, "\"event\":\"lost\"");
    ck_assert_uint_eq(rig.pump.inbox.count, 0);
    rig.pump.outcomes_due -= 5000;
    rig_disconnect(&client);
}
END_TEST

START_TEST(a_link_that_stays_down_fills_no_queue)
{
    struct event down = {.kind = EVENT_BACKEND_DOWN};
    struct event up = {.kind = EVENT_BACKEND_UP, .facts.role = "memory"};

    for (int i = 0; i < 1000; i++)
        pump_post(&rig.pump, &down);
    ck_assert_uint_eq(rig.pump.inbox.count, 1);
    pump_post(&rig.pump, &up);
    pump_post(&rig.pump, &down);
    ck_assert_uint_eq(rig.pump.inbox.count, 3);
    pump_post(&rig.pump, &up);
    pump_run(&rig.pump);
}
END_TEST

// Cut off for what the first of two answers of one step is too much for, a client gets no second.
START_TEST(no_answer_goes_to_one_who_was_just_cut_off)
{
    struct rig_client holder = rig_connect();
    struct rig_client waiter;
    char line[100];

    rig_say(&holder, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&holder, "\"ok\":true");
    waiter = rig_connect();
    for (int i = 0; i < 3; i++) {
        (void)snprintf(line, sizeof(line),
                       "{\"id\":%d,\"op\":\"acquire\",\"key\":\"k\",\"owner\":\"%d\","
                       "\"wait_ms\":5000}",
                       i, i);
        rig_say(&waiter, line);
    }
    rig_turn();
    rig.conns.limits.output_max_bytes = 10; // less than any line
    fault_clock_jump(6000);
    rig_hear_end(&waiter);
    ck_assert_int_eq((int)rig.conns.overflows, 1);
    ck_assert_int_eq((int)rig.pump.late_effects, 2);
    ck_assert_int_eq(rig_lines(&waiter), 0);
    rig_disconnect(&waiter);
    rig_disconnect(&holder);
}
END_TEST

// The same with what is told of losses.
START_TEST(no_notice_goes_to_one_who_was_just_cut_off)
{
    struct rig_client holder = rig_connect();
    char line[100];

    for (int i = 0; i < 3; i++) {
        (void)snprintf(line, sizeof(line),
                       "{\"id\":%d,\"op\":\"acquire\",\"key\":\"%d\",\"max_hold_ms\":3000}", i, i);
        rig_say(&holder, line);
    }
    rig_hear(&holder, "\"id\":2,\"ok\":true");
    rig_forget(&holder);
    rig.conns.limits.output_max_bytes = 10;
    fault_clock_jump(3500);
    rig_hear_end(&holder);
    ck_assert_int_eq((int)rig.conns.overflows, 1);
    ck_assert_int_eq((int)rig.pump.late_effects, 2);
    ck_assert_int_eq(rig_lines(&holder), 0);
    rig_disconnect(&holder);
}
END_TEST

START_TEST(a_pump_that_cannot_be_made_says_why)
{
    static struct pump pump;

    fault_call_fail("timerfd_create", EMFILE, 1, 1);
    ck_assert_int_eq(pump_init(&pump, &rig.loop, rig.broker), -EMFILE);
    fault_memory_fail(1, false);
    int without_memory = pump_init(&pump, &rig.loop, rig.broker);

    fault_memory_fail(0, false);
    ck_assert_int_eq(without_memory, -ENOMEM);
    fault_call_fail("uv_poll_init", ENOSPC, 1, 1);
    ck_assert_int_eq(pump_init(&pump, &rig.loop, rig.broker), -ENOSPC);
    // The descriptor was given back each time.
    ck_assert_int_eq(fcntl(pump.timer_fd, F_GETFD), -1);
}
END_TEST

Suite *pump_suite(void)
{
    Suite *suite = suite_create("pump");
    TCase *tcase = tcase_create("pump");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, rig_setup, rig_teardown);
    tcase_add_test(tcase, what_ran_out_in_a_pause_is_told_before_anything_else);
    tcase_add_test(tcase, the_timer_tells_without_any_event);
    tcase_add_test(tcase, a_grant_is_never_told_too_late);
    tcase_add_test(tcase, one_allocation_that_fails_costs_one_client_at_most);
    tcase_add_test(tcase, memory_that_is_gone_for_a_time);
    tcase_add_test(tcase, a_queue_that_cannot_grow_stops_and_goes_on);
    tcase_add_test(tcase, what_ran_out_without_memory_is_told_later);
    tcase_add_test(tcase, a_link_that_stays_down_fills_no_queue);
    tcase_add_test(tcase, no_answer_goes_to_one_who_was_just_cut_off);
    tcase_add_test(tcase, no_notice_goes_to_one_who_was_just_cut_off);
    tcase_add_test(tcase, a_pump_that_cannot_be_made_says_why);
    suite_add_tcase(suite, tcase);
    return suite;
}
