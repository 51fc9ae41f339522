// Connections: lines in, lines out, and when one is held back, refused or ended.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/io/fault.h"
#include "tests/unit/io/rig.h"
#include "tests/unit/io/suites.h"

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
    rig_disconnect(&client);
    rig_disconnect(&other);
    rig_teardown();
}

START_TEST(a_line_is_answered)
{
    rig_say(&client, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&client, "\"id\":1,\"ok\":true");
    rig_say(&client, "nonsense");
    rig_hear(&client, "\"id\":null,\"ok\":false,\"error\":\"malformed\"");
    ck_assert_int_eq(rig_lines(&client), 2);
}
END_TEST

START_TEST(bytes_may_come_one_by_one)
{
    const char *line = "{\"id\":1,\"op\":\"ping\"}\r\n";

    for (size_t i = 0; i < strlen(line); i++) {
        ck_assert_int_eq(rig_lines(&client), 0);
        ck_assert_uint_eq(rig_send(&client, line + i, 1), 1);
        rig_turn();
    }
    rig_hear(&client, "\"id\":1,\"ok\":true");
}
END_TEST

START_TEST(lines_before_the_end_are_handled)
{
    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_say(&client, "{\"id\":2,\"op\":\"release\",\"key\":\"k\",\"owner\":\"nobody\"}");
    ck_assert_uint_eq(rig_send(&client, "{\"id\":3,", 8), 8);
    ck_assert_int_eq(shutdown(client.fd, SHUT_WR), 0);
    rig_hear_end(&client);
    ck_assert(rig_heard(&client, "\"id\":1,\"ok\":true"));
    ck_assert(rig_heard(&client, "not_held"));
    ck_assert_int_eq(rig_lines(&client), 2);
}
END_TEST

START_TEST(the_end_gives_the_lock_to_the_next)
{
    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&client, "\"ok\":true");
    rig_say(&other, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"wait_ms\":-1}");
    rig_turn();
    ck_assert_int_eq(rig_lines(&other), 0);
    close(client.fd);
    client.fd = -1;
    rig_hear(&other, "\"ok\":true");
}
END_TEST

START_TEST(the_brokers_own_keys_are_refused)
{
    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"meta:fence\"}");
    rig_hear(&client, "\"id\":1,\"ok\":false,\"error\":\"bad_field\"");
    ck_assert(rig_heard(&client, "\"field\":\"key\""));
    rig_say(&client, "{\"id\":2,\"op\":\"acquire\",\"key\":\"meta\"}");
    rig_hear(&client, "\"id\":2,\"ok\":true");
}
END_TEST

START_TEST(one_connection_too_many_is_told_so)
{
    struct rig_client third;

    rig.conns.limits.connections_max = 2;
    third = rig_connect();
    rig_hear_end(&third);
    ck_assert(rig_heard(&third, "{\"id\":null,\"ok\":false,\"error\":\"quota\""));
    rig_disconnect(&third);
    close(client.fd);
    client.fd = -1;
    rig_turn();
    third = rig_connect();
    rig_say(&third, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&third, "\"ok\":true");
    rig_disconnect(&third);
}
END_TEST

START_TEST(a_silent_connection_is_closed)
{
    rig.conns.limits.idle_timeout_ms = 20;
    struct rig_client silent = rig_connect();
    struct rig_client half = rig_connect();
    struct rig_client talker = rig_connect();

    ck_assert_uint_eq(rig_send(&half, "{\"id\"", 5), 5);
    rig_say(&talker, "");
    rig_hear_end(&silent);
    rig_hear_end(&half);
    rig_say(&talker, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&talker, "\"id\":1,\"ok\":true");
    rig_disconnect(&silent);
    rig_disconnect(&half);
    rig_disconnect(&talker);
}
END_TEST

START_TEST(half_a_line_is_dropped_up_to_its_newline)
{
    rig.conns.limits.line_timeout_ms = 20;
    ck_assert_uint_eq(rig_send(&client, "{\"id\":1,", 8), 8);
    rig_hear(&client, "\"error\":\"malformed\"");
    rig_say(&client, "\"op\":\"ping\"}");
    rig_say(&client, "{\"id\":2,\"op\":\"ping\"}");
    rig_hear(&client, "\"id\":2,\"ok\":true");
    ck_assert_int_eq(rig_lines(&client), 2);
}
END_TEST

// Lines of one operation without fields.
static char *many(const char *op, int count)
{
    char *text = calloc((size_t)count, 32);
    char *end = text;

    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < count; i++)
        end += sprintf(end, "{\"id\":%d,\"op\":\"%s\"}\n", i, op);
    return text;
}

// A client that asks without end has its share of each turn, and no more.
START_TEST(a_flood_does_not_hold_up_a_neighbour)
{
    char *flood = many("ping", 20000);
    size_t length = strlen(flood);
    size_t sent = rig_send(&client, flood, length);

    ck_assert_uint_gt(sent, 100000);
    rig_say(&other, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&other, "\"id\":1,\"ok\":true");
    rig_read(&client);
    ck_assert_int_le(rig_lines(&client), 3 * 128);
    rig_hear(&client, "\"id\":2000,\"ok\":true");
    free(flood);
}
END_TEST

START_TEST(half_a_line_beside_a_lock_is_dropped_and_the_lock_stays)
{
    rig.conns.limits.line_timeout_ms = 5;
    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&client, "\"ok\":true");
    ck_assert_uint_eq(rig_send(&client, "{\"id\":2,", 8), 8);
    rig_hear(&client, "malformed");
    rig_say(&client, "\"op\":\"ping\"}");
    rig_say(&client, "{\"id\":3,\"op\":\"check\",\"key\":\"k\"}");
    rig_hear(&client, "\"id\":3,\"ok\":true,\"held\":true");
    ck_assert_int_eq(rig_lines(&client), 3);
}
END_TEST

START_TEST(a_client_behind_with_reading_is_held_back)
{
    char *requests = many("stats", 2000);

    rig.conns.limits.output_max_bytes = 65536;
    rig_disconnect(&other);
    other = rig_connect();
    ck_assert_uint_eq(rig_send(&other, requests, strlen(requests)), strlen(requests));
    free(requests);
    for (int i = 0; i < 20; i++)
        rig_turn();

    // Bounded while it does not read, and nothing of it is lost.
    ck_assert_int_eq((int)rig.conns.overflows, 0);
    rig_hear(&other, "{\"id\":1999,\"ok\":true");
    ck_assert_int_eq(rig_lines(&other), 2000);
}
END_TEST

START_TEST(a_client_that_never_reads_is_cut_off)
{
    char *requests = many("stats", 2000);

    rig.conns.limits.output_max_bytes = 65536;
    rig.conns.limits.idle_timeout_ms = 50;
    rig_say(&other, "{\"id\":1,\"op\":\"ping\"}");
    rig_hear(&other, "\"ok\":true");
    ck_assert_uint_eq(rig_send(&other, requests, strlen(requests)), strlen(requests));
    free(requests);
    while (rig.conns.count > 0) // `client` never spoke and goes too
        rig_turn();
    ck_assert_int_eq((int)rig.conns.overflows, 0);
}
END_TEST

START_TEST(a_holder_that_does_not_read_is_cut_off_and_its_key_kept)
{
    char *requests = many("stats", 2000);

    rig.conns.limits.output_max_bytes = 65536;
    rig_say(&other, "{\"id\":\"a\",\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&other, "\"ok\":true");
    (void)rig_send(&other, requests, strlen(requests));
    free(requests);
    while (rig.conns.count > 1)
        rig_turn();
    ck_assert_int_eq((int)rig.conns.overflows, 1);
    rig_say(&client, "{\"id\":1,\"op\":\"query\",\"key\":\"k\"}");
    rig_hear(&client, "\"id\":1,\"ok\":true,\"held\":true");

    // Its deadline over, the key is free.
    fault_clock_jump(40000);
    rig_say(&client, "{\"id\":2,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&client, "\"id\":2,\"ok\":true");
}
END_TEST

START_TEST(stats_have_the_figures_of_the_edge)
{
    rig_say(&client, "{\"id\":1,\"op\":\"stats\"}");
    rig_hear(&client, "\"connections\":2");
    ck_assert(rig_heard(&client, "\"connections_opened\":2"));
    ck_assert(rig_heard(&client, "\"output_overflows\":0"));
    ck_assert(rig_heard(&client, "\"log_lines_dropped\":"));
    ck_assert(!rig_heard(&client, "redis_"));
}
END_TEST

Suite *conn_suite(void)
{
    Suite *suite = suite_create("conn");
    TCase *tcase = tcase_create("conn");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_line_is_answered);
    tcase_add_test(tcase, bytes_may_come_one_by_one);
    tcase_add_test(tcase, lines_before_the_end_are_handled);
    tcase_add_test(tcase, the_end_gives_the_lock_to_the_next);
    tcase_add_test(tcase, the_brokers_own_keys_are_refused);
    tcase_add_test(tcase, one_connection_too_many_is_told_so);
    tcase_add_test(tcase, a_silent_connection_is_closed);
    tcase_add_test(tcase, half_a_line_is_dropped_up_to_its_newline);
    tcase_add_test(tcase, a_flood_does_not_hold_up_a_neighbour);
    tcase_add_test(tcase, half_a_line_beside_a_lock_is_dropped_and_the_lock_stays);
    tcase_add_test(tcase, a_client_behind_with_reading_is_held_back);
    tcase_add_test(tcase, a_client_that_never_reads_is_cut_off);
    tcase_add_test(tcase, a_holder_that_does_not_read_is_cut_off_and_its_key_kept);
    tcase_add_test(tcase, stats_have_the_figures_of_the_edge);
    suite_add_tcase(suite, tcase);
    return suite;
}
