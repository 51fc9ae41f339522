// The step itself: more to do than fits into one step, and what it says of its debts and deadlines.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "proto/request.h"
#include "tests/unit/core/suites.h"
#include "tests/unit/core/world.h"

#define MANY 1000

static struct world world;

static struct {
    int lost, granted, busy, unavailable, draining, was_lost, released, ops[5], steps;
    int64_t last_fence;
} seen;

static void observe(struct world *unused, const struct effect *effect)
{
    (void)unused;
    if (effect->kind == EFFECT_BACKEND)
        seen.ops[effect->op.kind]++;
    if (effect->kind == EFFECT_NOTICE)
        seen.lost += effect->notice.kind == NOTICE_LOST;
    if (effect->kind != EFFECT_REPLY)
        return;
    seen.granted += effect->reply.op == OP_ACQUIRE && effect->reply.error == ERROR_NONE;
    seen.busy += effect->reply.error == ERROR_BUSY;
    seen.unavailable += effect->reply.error == ERROR_UNAVAILABLE;
    seen.draining += effect->reply.error == ERROR_DRAINING;
    if (effect->reply.outcome) {
        seen.was_lost += strcmp(effect->reply.outcome, "was_lost") == 0;
        seen.released += strcmp(effect->reply.outcome, "released") == 0;
    }
}

static void setup(void)
{
    world_init(&world, 1, false);
    memset(&seen, 0, sizeof(seen));
    world.observe = observe;
    world_play_all(&world, "0 broker> config requests_max=20000\n0 A> open\n");
}

static void teardown(void)
{
    world_deinit(&world);
}

static void ask(enum op op, const char *key, int owner, int64_t wait_ms, int64_t ttl_ms)
{
    static int64_t id;
    struct request request;
    struct event event = {
        .kind = EVENT_REQUEST, .session = world_session('A'), .request = &request};

    request_init(&request);
    request.op = op;
    request.id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = ++id};
    request.wait_ms = wait_ms;
    request.ttl_ms = ttl_ms;
    (void)snprintf(request.key, sizeof(request.key), "%s", key);
    (void)snprintf(request.owner, sizeof(request.owner), "%d", owner);
    world_step(&world, &event);
}

static void answer_all(enum backend_result result)
{
    struct world_op *op;

    for (size_t i = 0; (op = world_pending(&world, i)); i = (size_t)(op - world.ops) + 1) {
        struct backend_outcome outcome = {
            .result = result, .sent_ms = LB_NONE, .server_ms = LB_NONE};

        outcome.fence = ++seen.last_fence;
        world_answer(&world, op, &outcome);
        op = &world.ops[i]; // answering may have moved them
        while (!op->answered)
            op++;
    }
}

static void hold_many(int64_t ttl_ms)
{
    char key[16];

    world_play(&world, "0 redis> up");
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        ask(OP_ACQUIRE, key, 0, 0, ttl_ms);
    }
    answer_all(RESULT_OK);
    ck_assert_int_eq(seen.granted, MANY);
    ck_assert_uint_eq(broker_kept_count(world.broker), MANY);
}

START_TEST(many_are_lost_at_one_time)
{
    hold_many(3000);
    world_play(&world, "2600 time>"); // each was to be told at 2518
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], MANY);
    ck_assert_int_eq(seen.lost, MANY);
}
END_TEST

// After a pause the request that comes first is looked at only when all have been told.
START_TEST(many_are_swept_before_a_request_is_served)
{
    struct event event = {.kind = EVENT_TIME};
    int unhandled = 0;

    hold_many(3000);
    event.now_ms = world.now_ms + 10000;
    while (!broker_step(world.broker, &event, &world.effects)) {
        ck_assert_uint_le(world.effects.count, EFFECTS_MAX);
        for (size_t i = 0; i < world.effects.count; i++)
            observe(&world, &world.effects.items[i]);
        unhandled++;
        broker_check(world.broker);
    }
    for (size_t i = 0; i < world.effects.count; i++)
        observe(&world, &world.effects.items[i]);
    ck_assert_int_gt(unhandled, 2 * MANY / EFFECTS_MAX);
    ck_assert_int_eq(seen.lost, MANY);
}
END_TEST

// A hundred a millisecond, so that the backend serves others in between.
START_TEST(many_are_renewed_at_a_pace)
{
    hold_many(3000);
    world_play(&world, "1000 time>");
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], 100);
    ck_assert(broker_next_deadline(world.broker) == WORLD_EPOCH_MS + 1001);
    world_play(&world, "1000 time>");
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], 100);
    world_play(&world, "1001 time>");
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], 200);
    world_play(&world, "1008 time>");
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], MANY - 100);
    world_play(&world, "1009 time>");
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], MANY);
    ck_assert(broker_next_deadline(world.broker) > WORLD_EPOCH_MS + 1010);
    answer_all(RESULT_OK);
    world_play(&world, "1900 time>");
    ck_assert_int_eq(seen.lost, 0);
}
END_TEST

// Who comes late to them does not keep to that.
START_TEST(many_that_are_late_are_renewed_at_once)
{
    struct event event = {.kind = EVENT_TIME};

    hold_many(3000);
    event.now_ms = WORLD_EPOCH_MS + 1020;
    while (!broker_step(world.broker, &event, &world.effects)) {
        for (size_t i = 0; i < world.effects.count; i++)
            observe(&world, &world.effects.items[i]);
    }
    for (size_t i = 0; i < world.effects.count; i++)
        observe(&world, &world.effects.items[i]);
    ck_assert_int_eq(seen.ops[BACKEND_RENEW], MANY);
}
END_TEST

START_TEST(many_are_given_back_when_a_session_ends)
{
    hold_many(30000);
    world_play(&world, "10 A> close");
    ck_assert_int_eq(seen.ops[BACKEND_RELEASE], MANY);
    answer_all(RESULT_OK);
    ck_assert_uint_eq(broker_kept_count(world.broker), 0);
    ck_assert(broker_next_deadline(world.broker) == INT64_MAX);
}
END_TEST

// The effects fill up in the midst of it: the broker wants to go on at once, and can be freed
// there.
START_TEST(many_may_be_freed_half_given_back)
{
    struct event event = {.kind = EVENT_SESSION_CLOSED, .session = world_session('A')};

    hold_many(30000);
    event.now_ms = world.now_ms;
    ck_assert(broker_step(world.broker, &event, &world.effects));
    ck_assert(broker_next_deadline(world.broker) == 0);
    ck_assert_uint_gt(broker_kept_count(world.broker), MANY / 2);
}
END_TEST

START_TEST(many_are_kept_when_a_session_is_cut)
{
    hold_many(3000);
    world_play(&world, "10 A> cut");
    ck_assert_int_eq(seen.ops[BACKEND_RELEASE], 0);
    world_play(&world, "2817 time>");
    ck_assert_int_ne(broker_next_deadline(world.broker), INT64_MAX);
    world_play(&world, "2818 time>");
    ck_assert(broker_next_deadline(world.broker) == INT64_MAX);
}
END_TEST

START_TEST(many_tries_are_answered_by_one_question)
{
    for (int i = 0; i < 10 * MANY; i++)
        ask(OP_ACQUIRE, "job", i, 0, LB_NONE);
    world_play(&world, "0 redis> up");
    ck_assert_int_eq(seen.ops[BACKEND_ACQUIRE], 1);
    answer_all(RESULT_BUSY);
    world_run(&world, world.now_ms);
    ck_assert_int_eq(seen.busy, 10 * MANY);
    ck_assert(broker_next_deadline(world.broker) == INT64_MAX);
}
END_TEST

START_TEST(many_tries_are_answered_when_the_link_fails)
{
    for (int i = 0; i < 10 * MANY; i++)
        ask(OP_ACQUIRE, "job", i, 0, LB_NONE);
    world_play(&world, "0 redis> down");
    ck_assert_int_eq(seen.unavailable, 10 * MANY);
}
END_TEST

START_TEST(many_are_drained)
{
    hold_many(30000);
    for (int i = 1; i <= MANY; i++)
        ask(OP_ACQUIRE, "k1", i, -1, LB_NONE);
    ck_assert(!broker_is_drained(world.broker));
    world_play(&world, "5 broker> drain");
    ck_assert_int_eq(seen.lost, MANY);
    ck_assert_int_eq(seen.draining, MANY);
    ck_assert(!broker_is_drained(world.broker));
    ck_assert_uint_eq(broker_kept_count(world.broker), MANY);
    world_play(&world, "6 A> close");
    ck_assert(!broker_is_drained(world.broker));
    answer_all(RESULT_OK);
    ck_assert(broker_is_drained(world.broker));
}
END_TEST

START_TEST(nothing_held_is_drained_at_once)
{
    ck_assert(!broker_is_drained(world.broker));
    world_play(&world, "0 broker> drain");
    ck_assert(broker_is_drained(world.broker));
}
END_TEST

// What is gone, or left to expire, need not be waited for; what cannot be given back is waited for.
START_TEST(what_a_drain_waits_for)
{
    world_play_all(&world, "0 redis> up\n0 A> 1 acquire a ttl=3000\n0 A> 2 acquire b ttl=3000\n"
                           "0 redis> all ok fence=1\n1000 redis> #3 gone\n1000 redis> #4 ok\n");
    ck_assert_uint_eq(broker_kept_count(world.broker), 1);
    world_play_all(&world, "1100 redis> down\n1101 broker> drain\n1102 A> 3 release b\n");
    ck_assert(!broker_is_drained(world.broker));
    world_play_all(&world, "1200 redis> up\n");
    ck_assert(!broker_is_drained(world.broker));
    world_play_all(&world, "1201 redis> all gone\n");
    ck_assert(broker_is_drained(world.broker));
    ck_assert_uint_eq(broker_kept_count(world.broker), 0);
}
END_TEST

// The last 64 lost grants of a connection are remembered, to tell a late release the truth.
START_TEST(sixty_four_lost_ones_are_remembered)
{
    char key[16];

    world_play(&world, "0 redis> up");
    for (int i = 0; i < 65; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        ask(OP_ACQUIRE, key, 0, 0, 1000);
    }
    answer_all(RESULT_OK);
    world_play(&world, "2000 time>");
    ck_assert_int_eq(seen.lost, 65);
    ask(OP_RELEASE, "k0", 0, 0, LB_NONE);
    ck_assert_int_eq(seen.was_lost, 0);
    for (int i = 1; i < 65; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        ask(OP_RELEASE, key, 0, 0, LB_NONE);
    }
    ck_assert_int_eq(seen.was_lost, 64);
    ask(OP_RELEASE, "k5", 0, 0, LB_NONE);
    ck_assert_int_eq(seen.was_lost, 64);
}
END_TEST

START_TEST(a_session_is_busy_while_it_has_something)
{
    uint64_t a = world_session('A');

    ck_assert(!broker_session_is_busy(world.broker, a));
    ck_assert(!broker_session_is_busy(world.broker, 99));
    world_play_all(&world, "0 redis> up\n0 A> 1 acquire a ttl=1000\n");
    ck_assert(broker_session_is_busy(world.broker, a));
    world_play_all(&world, "0 redis> all ok fence=1\n850 time>\n");
    ck_assert_int_eq(seen.lost, 1);
    ck_assert(broker_session_is_busy(world.broker, a)); // its key must be given back
    world_play_all(&world, "950 time>\n");
    ck_assert(!broker_session_is_busy(world.broker, a));
}
END_TEST

START_TEST(strangers_are_ignored)
{
    struct event outcome = {.kind = EVENT_BACKEND_OUTCOME};
    struct event stale = {.kind = EVENT_GRANT_STALE, .session = world_session('A'), .grant_id = 9};

    outcome.outcome.op_id = 77;
    world_step(&world, &outcome);
    world_step(&world, &stale);
    world_play_all(&world, "0 B> 1 ping\n0 B> close\n0 A> close\n0 A> 1 ping\n");
    ck_assert(broker_next_deadline(world.broker) == INT64_MAX);
}
END_TEST

static struct stats_page stats;
static struct stat_value counters[64];
static struct stat_value gauges[16];

static void keep_stats(struct world *unused, const struct effect *effect)
{
    (void)unused;
    if (effect->kind != EFFECT_REPLY || !effect->reply.stats)
        return;
    stats = *effect->reply.stats;
    memcpy(counters, stats.counters, stats.counters_count * sizeof(counters[0]));
    memcpy(gauges, stats.gauges, stats.gauges_count * sizeof(gauges[0]));
}

static int64_t value_of(const struct stat_value *values, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(values[i].name, name) == 0)
            return values[i].value;
    }
    ck_abort_msg("no value %s", name);
    return 0;
}

static int64_t counter(const char *name)
{
    return value_of(counters, stats.counters_count, name);
}

static int64_t gauge(const char *name)
{
    return value_of(gauges, stats.gauges_count, name);
}

START_TEST(stats_tell_what_happened)
{
    world.observe = keep_stats;
    world_play_all(&world,
                   "0 redis> up run=a policy=allkeys-lru may_evict\n0 A> 1 acquire a ttl=3000\n"
                   "1 redis> all ok fence=1\n2 B> open\n3 B> 1 acquire a\n4 A> 2 release a\n"
                   "5 redis> all ok\n6 A> 3 acquire b ttl=1000 renew=0\n6 redis> all ok fence=2\n"
                   "900 B> bad 2 malformed\n901 B> 3 stats\n");
    ck_assert_int_eq(counter("acquires"), 3);
    ck_assert_int_eq(counter("granted"), 2);
    ck_assert_int_eq(counter("busy"), 1);
    ck_assert_int_eq(counter("released"), 1);
    ck_assert_int_eq(counter("lost_not_renewed"), 1);
    ck_assert_int_eq(counter("bad_requests"), 1);
    ck_assert_int_eq(counter("sessions_opened"), 2);
    ck_assert_str_eq(stats.backend_state, "up");
    ck_assert_str_eq(stats.backend_policy, "allkeys-lru");
    ck_assert(stats.backend_may_evict && !stats.backend_role);
    ck_assert_uint_eq(stats.histograms_count, 3);
    ck_assert_int_eq(stats.histograms[1].sum, 841); // held for 4 - 1 and 844 - 6
}
END_TEST

START_TEST(stats_tell_of_a_loss_of_data)
{
    world.observe = keep_stats;
    world_play_all(&world, "0 broker> config waits_after_loss=1\n0 redis> up run=a server=5000\n"
                           "0 A> 1 acquire a\n1 redis> all ok fence=1 server=5001\n2 A> 2 stats\n");
    ck_assert_int_eq(gauge("quarantine_ms"), 0);
    ck_assert_int_eq(counter("clock_steps"), 0);
    ck_assert_int_eq(counter("reasserted"), 0);
    world_play_all(&world, "3 redis> down\n4 redis> up run=b server=15004\n"
                           "5 redis> all ok was_missing server=15005\n6 A> 3 acquire b\n"
                           "10 redis> all quarantined ends_in=700 server=5010\n11 A> 4 stats\n");
    ck_assert_int_eq(gauge("quarantine_ms"), 699);
    ck_assert_int_eq(counter("clock_steps"), 2);
    ck_assert_int_eq(counter("reasserted"), 1);
    ck_assert_int_eq(counter("renewals"), 1);
    world_play_all(&world, "709 A> 5 stats\n");
    ck_assert_int_eq(gauge("quarantine_ms"), 1);
    world_play_all(&world, "711 A> 6 stats\n");
    ck_assert_int_eq(gauge("quarantine_ms"), 0);
}
END_TEST

START_TEST(stats_tell_of_waiting)
{
    world.observe = keep_stats;
    world_play_all(&world, "0 broker> config fence_block=8 handoff_grants_max=2\n0 redis> up\n"
                           "0 redis> channel_up\n1 A> 1 acquire a wait=-1\n2 B> open\n"
                           "2 redis> all busy broker host=h2 ttl_left=50\n60 A> 2 stats\n");
    ck_assert_int_eq(gauge("waiting"), 1);
    ck_assert_int_eq(counter("attempts"), 2);
    ck_assert_int_eq(counter("polls"), 1);
    ck_assert_int_eq(counter("turns_taken"), 0);
    world_play_all(&world, "61 redis> all busy broker host=h2 ttl_left=9000\n70 redis> turn a\n"
                           "70 redis> turn other\n71 redis> all ok fence=10\n"
                           "72 B> 1 acquire a wait=-1\n72 A> 3 stats\n");
    ck_assert_int_eq(counter("turns_taken"), 1);
    ck_assert_int_eq(counter("attempts"), 3);
    ck_assert_int_eq(counter("polls"), 1);
    ck_assert_int_eq(counter("refills"), 1);
    ck_assert_int_eq(counter("handoffs"), 0);
    world_play_all(&world, "73 redis> all ok fence=20 fences=8\n74 A> 4 release a\n"
                           "75 B> 2 release a\n76 redis> all ok gave_turn\n77 A> 5 stats\n");
    ck_assert_int_eq(counter("handoffs"), 1);
    ck_assert_int_eq(counter("turns_given"), 1);
    ck_assert_int_eq(gauge("waiting"), 0);
}
END_TEST

START_TEST(stats_tell_of_what_is_remembered)
{
    world.observe = keep_stats;
    world_play_all(&world, "0 broker> config busy_cache=5 waiters_key_max=1\n0 redis> up\n"
                           "1 A> 1 acquire a\n2 redis> all busy foreign ttl_left=900\n"
                           "3 A> 2 acquire a\n50 A> 3 stats\n");
    ck_assert_int_eq(counter("attempts"), 1);
    ck_assert_int_eq(counter("busy"), 2);
    ck_assert_int_eq(counter("polls"), 0); // nobody asked when it was forgotten
    world_play_all(&world, "51 A> 4 acquire a wait=-1\n52 A> 5 acquire a wait=-1 owner=o\n"
                           "53 A> 6 stats\n");
    ck_assert_int_eq(counter("quota_refused"), 1);
}
END_TEST

Suite *broker_suite(void)
{
    Suite *suite = suite_create("broker");
    TCase *tests = tcase_create("broker");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, many_are_lost_at_one_time);
    tcase_add_test(tests, many_are_swept_before_a_request_is_served);
    tcase_add_test(tests, many_are_renewed_at_a_pace);
    tcase_add_test(tests, many_that_are_late_are_renewed_at_once);
    tcase_add_test(tests, many_are_given_back_when_a_session_ends);
    tcase_add_test(tests, many_may_be_freed_half_given_back);
    tcase_add_test(tests, many_are_kept_when_a_session_is_cut);
    tcase_add_test(tests, many_tries_are_answered_by_one_question);
    tcase_add_test(tests, many_tries_are_answered_when_the_link_fails);
    tcase_add_test(tests, many_are_drained);
    tcase_add_test(tests, nothing_held_is_drained_at_once);
    tcase_add_test(tests, what_a_drain_waits_for);
    tcase_add_test(tests, sixty_four_lost_ones_are_remembered);
    tcase_add_test(tests, a_session_is_busy_while_it_has_something);
    tcase_add_test(tests, strangers_are_ignored);
    tcase_add_test(tests, stats_tell_what_happened);
    tcase_add_test(tests, stats_tell_of_a_loss_of_data);
    tcase_add_test(tests, stats_tell_of_waiting);
    tcase_add_test(tests, stats_tell_of_what_is_remembered);
    suite_add_tcase(suite, tests);
    return suite;
}
