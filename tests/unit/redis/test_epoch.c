// What the scripts make of lost data, against a real Redis: the epoch marker, the wait after a
// loss, keys that are set again.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

#define MARKER "lockbroker:meta:epoch"
#define FENCE  "lockbroker:meta:fence"

// Longest ttl and the wait that it makes: 1 % and 2 ms more, rounded up.
#define LONGEST_MS 30050
#define WAIT_MS    (LONGEST_MS + 301 + 2)

static struct server server;
static struct rig rig;

static void setup(void)
{
    server_start(&server, false, NULL);
    rig_init(&rig, &server);
    rig_open_up(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
}

static void marker_set(const char *run_id, int64_t since_ms, int64_t ttl_ms)
{
    char value[128];

    (void)snprintf(value, sizeof(value), "%s %" PRId64 " %" PRId64, run_id, since_ms, ttl_ms);
    freeReplyObject(server_command(&server, "SET " MARKER " %s", value));
}

// The marker is of this run, with that time and ttl.
static void marker_is(int64_t since_ms, int64_t ttl_ms)
{
    char value[128];

    (void)snprintf(value, sizeof(value), "%s %" PRId64 " %" PRId64, rig.run_id, since_ms, ttl_ms);
    ck_assert(server_text_is(&server, "GET " MARKER, value));
}

static int64_t marker_since(void)
{
    redisReply *reply = server_command(&server, "GET " MARKER);
    int64_t since_ms;

    ck_assert_ptr_nonnull(reply->str);
    since_ms = strtoll(strchr(reply->str, ' '), NULL, 10);
    freeReplyObject(reply);
    return since_ms;
}

// From now on free keys wait, and keys that are missing may be set again.
static void loss_begin(void)
{
    rig.loss_ttl_ms = LONGEST_MS;
    rig.saw_epoch = true;
}

static bool key_exists(const char *command)
{
    return server_number(&server, command) == 1;
}

START_TEST(test_nothing_waited_out_touches_no_marker)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "b", 2, 60000)->result, RESULT_GONE);
    ck_assert(!key_exists("EXISTS " MARKER));
    server_run(&server, "LPUSH " MARKER " x");
    ck_assert_int_eq(rig_acquire(&rig, "c", 3, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "c", 3, 60000)->result, RESULT_OK);
    ck_assert_int_eq(server_number(&server, "LLEN " MARKER), 1);
}
END_TEST

// What a server that has been up for so long says of its age, in whole seconds.
static int64_t uptime_now(void)
{
    redisReply *reply = server_command(&server, "INFO server");
    const char *at = strstr(reply->str, "uptime_in_seconds:");
    int64_t uptime;

    ck_assert_ptr_nonnull(at);
    uptime = strtoll(at + strlen("uptime_in_seconds:"), NULL, 10);
    freeReplyObject(reply);
    return uptime;
}

static bool is_older(const struct rig *unused, int64_t seconds)
{
    (void)unused;
    return uptime_now() >= seconds;
}

// The time counts from the start of the server, rounded so that it is never before it.
static void since_is_the_start(const struct backend_outcome *outcome, int64_t uptime)
{
    int64_t since_ms = marker_since();

    for (int64_t most = uptime_now(); uptime <= most; uptime++) {
        if (since_ms == outcome->server_ms - uptime * 1000 + 1000)
            return;
    }
    ck_abort_msg("since %" PRId64 " at %" PRId64, since_ms, outcome->server_ms);
}

START_TEST(test_a_server_never_seen_counts_from_its_start)
{
    const struct backend_outcome *outcome;
    int64_t uptime;

    rig_await(&rig, is_older, 3);
    rig.loss_ttl_ms = LONGEST_MS;
    uptime = uptime_now();
    outcome = rig_acquire(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    since_is_the_start(outcome, uptime);
    ck_assert_int_eq(outcome->ends_in_ms, marker_since() + WAIT_MS - outcome->server_ms);
    marker_is(marker_since(), LONGEST_MS);

    // So it is by a renewal, which has nothing to set again for one who was long up.
    server_run(&server, "DEL " MARKER);
    rig.loss_ttl_ms = 1000;
    rig_await(&rig, is_older, 4);
    uptime = uptime_now();
    outcome = rig_renew(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_GONE);
    since_is_the_start(outcome, uptime);
    marker_is(marker_since(), 1000);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}
END_TEST

START_TEST(test_a_server_just_started_counts_from_now)
{
    const struct backend_outcome *outcome;
    int64_t since_ms;

    rig.loss_ttl_ms = LONGEST_MS;
    outcome = rig_acquire(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    since_ms = marker_since();
    ck_assert_int_le(since_ms, outcome->server_ms); // never in the future
    ck_assert_int_eq(outcome->ends_in_ms, since_ms + WAIT_MS - outcome->server_ms);

    // The marker stays as it is.
    rig.saw_epoch = true;
    outcome = rig_acquire(&rig, "a", 1, 60000);
    marker_is(since_ms, LONGEST_MS);
    ck_assert_int_eq(outcome->ends_in_ms, since_ms + WAIT_MS - outcome->server_ms);
}
END_TEST

START_TEST(test_a_marker_gone_counts_from_now)
{
    const struct backend_outcome *outcome;

    rig_await(&rig, is_older, 3); // the start of the server is another time
    marker_set(rig.run_id, 5, LONGEST_MS);
    loss_begin();
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    marker_is(5, LONGEST_MS);
    server_run(&server, "FLUSHALL");
    outcome = rig_acquire(&rig, "b", 2, 60000);
    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    ck_assert_int_eq(outcome->ends_in_ms, WAIT_MS);
    marker_is(outcome->server_ms, LONGEST_MS);
    server_run(&server, "FLUSHALL");
    outcome = rig_renew(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert(outcome->was_missing);
    marker_is(outcome->server_ms, LONGEST_MS);
}
END_TEST

START_TEST(test_a_marker_of_another_run_counts_from_now)
{
    const struct backend_outcome *outcome;

    rig_await(&rig, is_older, 3);
    rig.loss_ttl_ms = LONGEST_MS;
    for (int i = 0; i < 2; i++) {
        rig.saw_epoch = i == 1;
        marker_set("0123456789abcdef0123456789abcdef01234567", 5, 1000);
        outcome = rig_acquire(&rig, "a", 1, 60000);
        ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
        ck_assert_int_eq(outcome->ends_in_ms, WAIT_MS);
        marker_is(outcome->server_ms, LONGEST_MS);
    }

    // The ttls of the run before are those that count.
    marker_set("0123", 5, 3600000);
    outcome = rig_acquire(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->ends_in_ms, 3600000 + 36000 + 2);
    marker_is(outcome->server_ms, 3600000);
}
END_TEST

START_TEST(test_a_marker_that_is_garbage_is_none)
{
    // What stands before and behind this run's id.
    static const struct {
        const char *before, *behind;
    } values[] = {
        {"x", ""},      {"", ""},           {"", " 1"},
        {"", " 1 x"},   {"", " x 1"},       {"", "  1"},
        {" ", " 1 2"},  {"", " 1 2 "},      {"", " 1 2 3"},
        {"", " -1 2"},  {"", " 1 -2"},      {"", " 1.5 2"},
        {"", "1 2"},    {"", " 1e3 2"},     {"x ", " 1 2"},
        {"", "\t1\t2"}, {"", " 1 3600001"}, {"", " 1 99999999999999999999"},
    };

    rig_await(&rig, is_older, 3);
    loss_begin();
    for (size_t i = 0; i < LB_ARRAY_LENGTH(values); i++) {
        const struct backend_outcome *outcome;
        char value[128];

        (void)snprintf(value, sizeof(value), "%s%s%s", values[i].before, rig.run_id,
                       values[i].behind);
        freeReplyObject(server_command(&server, "SET " MARKER " %s", value));
        outcome = rig_acquire(&rig, "a", 1, 60000);
        ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
        ck_assert_int_eq(outcome->ends_in_ms, WAIT_MS);
        marker_is(outcome->server_ms, LONGEST_MS);
    }
    rig.saw_epoch = false;
    server_run(&server, "SET " MARKER " x");
    since_is_the_start(rig_acquire(&rig, "a", 1, 60000), 3);
}
END_TEST

START_TEST(test_a_marker_of_another_type)
{
    server_run(&server, "LPUSH " MARKER " x");
    server_run(&server, "SET lock:ours " RIG_TOKEN(7) " PX 60000");
    loss_begin();
    const struct backend_outcome *outcome = rig_acquire(&rig, "a", 1, 60000);

    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    marker_is(outcome->server_ms, LONGEST_MS);
    ck_assert_int_eq(rig_renew(&rig, "ours", 7, 60000)->result, RESULT_OK);
    ck_assert(!key_exists("EXISTS lock:a"));
    ck_assert_int_eq(rig_release(&rig, "ours", 7)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_a_clock_set_back_begins_anew)
{
    const struct backend_outcome *outcome;

    loss_begin();
    marker_set(rig.run_id, server_time_ms(&server) + 600000, LONGEST_MS);
    outcome = rig_acquire(&rig, "a", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    ck_assert_int_eq(outcome->ends_in_ms, WAIT_MS);
    marker_is(outcome->server_ms, LONGEST_MS);
}
END_TEST

START_TEST(test_the_longest_ttl_only_rises)
{
    marker_set(rig.run_id, 5, 1000);
    loss_begin();
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    marker_is(5, LONGEST_MS);
    rig.loss_ttl_ms = 1000;
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    marker_is(5, LONGEST_MS);
    rig.loss_ttl_ms = 3600000;
    ck_assert_int_eq(rig_renew(&rig, "b", 2, 60000)->result, RESULT_OK);
    marker_is(5, 3600000);
}
END_TEST

// Until `since` and the wait are over, to the millisecond: neither sooner nor later.
START_TEST(test_the_end_to_the_ms)
{
    bool was_last = false, was_first = false;

    loss_begin();
    while (rig.ops_count < RIG_OPS_MAX - 1 && !(was_last && was_first)) {
        int64_t end_ms = server_time_ms(&server) + (int64_t)(rig.ops_count % 8) / 2;
        const struct backend_outcome *outcome;
        int64_t left_ms;

        marker_set(rig.run_id, end_ms - WAIT_MS, LONGEST_MS);
        outcome = rig_acquire(&rig, "a", 1, 60000);
        left_ms = end_ms - outcome->server_ms;
        ck_assert_int_eq(outcome->result, left_ms > 0 ? RESULT_QUARANTINED : RESULT_OK);
        if (left_ms > 0)
            ck_assert_int_eq(outcome->ends_in_ms, left_ms);
        was_last = was_last || left_ms == 1;
        was_first = was_first || left_ms == 0;
        ck_assert_int_eq(rig_release(&rig, "a", 1)->result, left_ms > 0 ? RESULT_GONE : RESULT_OK);
        marker_is(end_ms - WAIT_MS, LONGEST_MS);
    }
    ck_assert(was_last && was_first);
}
END_TEST

START_TEST(test_what_goes_on_meanwhile)
{
    const struct backend_outcome *outcome;

    loss_begin();
    server_run(&server, "SET lock:ours " RIG_TOKEN(7) " PX 60000");
    server_run(&server, "SET lock:theirs stranger PX 60000");
    server_run(&server, "LPUSH lock:list x");
    outcome = rig_acquire(&rig, "free", 1, 60000);
    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    ck_assert(!key_exists("EXISTS lock:free"));
    ck_assert(!key_exists("EXISTS " FENCE));
    ck_assert_int_eq(rig_acquire(&rig, "theirs", 2, 60000)->result, RESULT_BUSY);
    ck_assert_int_eq(rig_acquire(&rig, "list", 3, 60000)->result, RESULT_CONFLICT);
    outcome = rig_acquire(&rig, "ours", 7, 90000);
    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_gt(outcome->fence, 1600000000000000LL);
    ck_assert_int_gt(server_number(&server, "PTTL lock:ours"), 60000);
    ck_assert_int_eq(rig_release(&rig, "ours", 7)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "ours", 7, 90000)->result, RESULT_QUARANTINED);
    ck_assert_int_eq(rig_query(&rig, "ours")->holder.kind, HOLDER_NONE);
}
END_TEST

static const struct backend_outcome *set_again(const char *key, uint64_t serial, int64_t floor)
{
    const struct backend_outcome *outcome = rig_run(&rig, BACKEND_RENEW, key, serial, 60000, floor);

    ck_assert_int_eq(outcome->result, RESULT_OK);
    return outcome;
}

START_TEST(test_missing_keys_are_set_again)
{
    loss_begin();
    ck_assert(set_again("a", 1, 0)->was_missing);
    ck_assert(server_text_is(&server, "GET lock:a", RIG_TOKEN(1)));
    ck_assert_int_le(server_number(&server, "PTTL lock:a"), 60000);
    ck_assert_int_gt(server_number(&server, "PTTL lock:a"), 30000);
    ck_assert(!key_exists("EXISTS " FENCE));
    ck_assert(!set_again("a", 1, 0)->was_missing);
    ck_assert_int_eq(rig_renew(&rig, "a", 2, 60000)->result, RESULT_STOLEN);

    // Not any more when all is waited out.
    marker_set(rig.run_id, server_time_ms(&server) - WAIT_MS, LONGEST_MS);
    server_run(&server, "DEL lock:a");
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_GONE);
    ck_assert(!key_exists("EXISTS lock:a"));
}
END_TEST

START_TEST(test_the_fence_counter_comes_back)
{
    loss_begin();
    ck_assert(set_again("a", 1, 7000000000000123)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "7000000000000123"));
    ck_assert(set_again("b", 2, 7000000000000124)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "7000000000000124"));
    ck_assert(set_again("c", 3, 7000000000000123)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "7000000000000124"));
    ck_assert(!set_again("c", 3, 7000000000000999)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "7000000000000124"));
    server_run(&server, "SET " FENCE " rubbish");
    ck_assert(set_again("d", 4, 77)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "77"));

    // What is of another type is no counter.
    server_run(&server, "DEL " FENCE);
    server_run(&server, "LPUSH " FENCE " x");
    ck_assert(set_again("e", 5, 88)->was_missing);
    ck_assert(server_text_is(&server, "GET " FENCE, "88"));
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_out_of_memory)
{
    uint64_t ops[2];

    ck_assert_int_eq(rig_acquire(&rig, "ours", 1, 60000)->result, RESULT_OK);
    loss_begin();
    server_run(&server, "CONFIG SET maxmemory 1");
    ops[0] = rig_submit(&rig, BACKEND_RENEW, "gone", 2, 90000, 500);
    ops[1] = rig_submit(&rig, BACKEND_RENEW, "ours", 1, 90000, 500);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, ops[0])->result, RESULT_REFUSED);
    ck_assert_int_eq(rig_outcome(&rig, ops[1])->result, RESULT_OK);
    ck_assert(!rig_outcome(&rig, ops[1])->was_missing);
    ck_assert_int_gt(server_number(&server, "PTTL lock:ours"), 60000);
    ck_assert_int_eq(rig_acquire(&rig, "free", 3, 60000)->result, RESULT_REFUSED);
    ck_assert_int_eq(rig_release(&rig, "ours", 1)->result, RESULT_OK);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:gone lock:free " MARKER), 0);
    ck_assert_int_eq(rig.downs, 0);
    server_run(&server, "CONFIG SET maxmemory 0");
    ck_assert(set_again("gone", 2, 500)->was_missing);
}
END_TEST

START_TEST(test_a_whole_batch_is_set_again)
{
    static char keys[100][8];
    struct uplink_figures figures;

    loss_begin();
    for (uint64_t i = 0; i < 100; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "k%d", (int)i);
        (void)rig_submit(&rig, BACKEND_RENEW, keys[i], i + 1, 60000, (int64_t)i);
    }
    rig_flush(&rig);
    rig_await_ended(&rig);
    uplink_get_figures(rig.uplink, &figures);
    ck_assert_int_eq(figures.renewal_calls, 1);
    for (uint64_t op = 1; op <= 100; op++) {
        ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_OK);
        ck_assert(rig_outcome(&rig, op)->was_missing);
    }
    ck_assert(server_text_is(&server, "GET lock:k0", RIG_TOKEN(1)));
    ck_assert(server_text_is(&server, "GET lock:k99", RIG_TOKEN(100)));
    ck_assert(server_text_is(&server, "GET " FENCE, "99"));
    ck_assert_int_eq(server_number(&server, "DBSIZE"), 102);
}
END_TEST

// It takes no marker, so nothing is known: that is an error, and no quarantine.
START_TEST(test_a_replica_is_no_loss)
{
    server_run(&server, "REPLICAOF 127.0.0.1 1");
    loss_begin();
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_REFUSED);
    rig_await_down(&rig, 2);
    server_run(&server, "REPLICAOF NO ONE");
    rig_await_up(&rig, 2);
    server_run(&server, "REPLICAOF 127.0.0.1 1");
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_REFUSED);
    rig_await_down(&rig, rig.downs + 1);
    ck_assert(!key_exists("EXISTS " MARKER));
}
END_TEST

static int64_t infos_asked(void)
{
    redisReply *reply = server_command(&server, "INFO commandstats");
    const char *at = strstr(reply->str, "cmdstat_info:calls=");
    int64_t calls = at ? strtoll(at + strlen("cmdstat_info:calls="), NULL, 10) : 0;

    freeReplyObject(reply);
    return calls;
}

// Once nothing is to be waited for, the server is not asked for its run again, by acquires and by
// renewals; but any change of the marker is seen, and so is a wait for longer locks.
START_TEST(test_a_known_marker_is_not_looked_into)
{
    int64_t asked;

    loss_begin();
    marker_set(rig.run_id, 1000, LONGEST_MS);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    asked = infos_asked();
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(infos_asked(), asked + 1); // our own

    rig.loss_ttl_ms = LONGEST_MS + 1;
    ck_assert_int_eq(rig_acquire(&rig, "c", 3, 60000)->result, RESULT_OK);
    marker_is(1000, LONGEST_MS + 1);
    marker_set("another", 1000, LONGEST_MS + 1);
    ck_assert_int_eq(rig_acquire(&rig, "d", 4, 60000)->result, RESULT_QUARANTINED);
    server_run(&server, "DEL " MARKER);
    ck_assert_int_eq(rig_acquire(&rig, "d", 4, 60000)->result, RESULT_QUARANTINED);
    ck_assert_int_eq(rig_renew(&rig, "e", 5, 60000)->was_missing, true);
}
END_TEST

Suite *epoch_suite(void)
{
    Suite *suite = suite_create("redis/epoch");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_what_goes_on_meanwhile);
    tcase_add_test(tcase, test_missing_keys_are_set_again);
    tcase_add_test(tcase, test_the_fence_counter_comes_back);
    tcase_add_test(tcase, test_out_of_memory);
    tcase_add_test(tcase, test_a_whole_batch_is_set_again);
    tcase_add_test(tcase, test_a_replica_is_no_loss);
    tcase_add_test(tcase, test_nothing_waited_out_touches_no_marker);
    tcase_add_test(tcase, test_a_server_never_seen_counts_from_its_start);
    tcase_add_test(tcase, test_a_server_just_started_counts_from_now);
    tcase_add_test(tcase, test_a_marker_gone_counts_from_now);
    tcase_add_test(tcase, test_a_marker_of_another_run_counts_from_now);
    tcase_add_test(tcase, test_a_marker_that_is_garbage_is_none);
    tcase_add_test(tcase, test_a_marker_of_another_type);
    tcase_add_test(tcase, test_a_clock_set_back_begins_anew);
    tcase_add_test(tcase, test_the_longest_ttl_only_rises);
    tcase_add_test(tcase, test_a_known_marker_is_not_looked_into);
    tcase_add_test(tcase, test_the_end_to_the_ms);
    suite_add_tcase(suite, tcase);
    return suite;
}
