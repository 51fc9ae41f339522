// From the channel into the broker: what is told, in which order, and without memory.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/io/hearing.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/rig.h"
#include "tests/unit/io/suites.h"

static struct hearing hearing;

static void setup(void)
{
    rig_setup();
    hearing = (struct hearing){.pump = &rig.pump};
}

static void take(enum event_kind kind, const char *key)
{
    struct event event = {.kind = kind};

    if (key)
        event.key = key;
    hearing_take(&hearing, &event);
}

// A pump that can step nothing: its queue would have to grow, and there is no memory.
static void pump_block(void)
{
    rig.pump.outcomes_due += 5000;
    fault_memory_fail(1, true);
}

static void pump_unblock(void)
{
    fault_memory_fail(0, false);
    rig.pump.outcomes_due -= 5000;
}

START_TEST(ups_and_downs_are_told)
{
    take(EVENT_CHANNEL_UP, NULL);
    ck_assert(hearing.is_up && hearing.is_told_up);
    take(EVENT_CHANNEL_DOWN, NULL);
    ck_assert(!hearing.is_up && !hearing.is_told_up);
    take(EVENT_CHANNEL_UP, NULL);
    ck_assert(hearing.is_up && hearing.is_told_up);
}
END_TEST

START_TEST(what_could_not_be_told_is_told_later)
{
    pump_block();
    take(EVENT_CHANNEL_UP, NULL);
    hearing_retry(&hearing);
    pump_unblock();
    ck_assert(hearing.is_up && !hearing.is_told_up);
    hearing_retry(&hearing);
    ck_assert(hearing.is_told_up);
    pump_block();
    take(EVENT_CHANNEL_DOWN, NULL);
    pump_unblock();
    ck_assert(!hearing.is_up && hearing.is_told_up);
    hearing_retry(&hearing);
    ck_assert(!hearing.is_told_up);
}
END_TEST

// The text is gone right after the call; under a sanitizer a later look at it is seen.
START_TEST(hints_are_stepped_at_once)
{
    struct rig_client client = rig_connect();
    char *key = strdup("k");

    rig_say(&client, "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\"}");
    rig_hear(&client, "\"ok\":true");
    take(EVENT_CHANNEL_UP, NULL);
    take(EVENT_TURN, key);
    take(EVENT_CONTENDED, key);
    take(EVENT_TURN, "of nobody here");
    take(EVENT_CONTENDED, "of nobody here");
    free(key);
    rig_turn();
    broker_check(rig.broker);
    rig_say(&client, "{\"id\":2,\"op\":\"check\",\"key\":\"k\"}");
    rig_hear(&client, "\"held\":true");
    rig_disconnect(&client);
}
END_TEST

START_TEST(without_memory_a_hint_is_dropped)
{
    pump_block();
    take(EVENT_TURN, "k");
    take(EVENT_CONTENDED, "k");
    pump_unblock();
    ck_assert_uint_eq(rig.pump.inbox.count, 0);
    rig_turn();
    broker_check(rig.broker);
}
END_TEST

Suite *hearing_suite(void)
{
    Suite *suite = suite_create("io/hearing");
    TCase *tcase = tcase_create("hearing");

    tcase_add_checked_fixture(tcase, setup, rig_teardown);
    tcase_add_test(tcase, ups_and_downs_are_told);
    tcase_add_test(tcase, what_could_not_be_told_is_told_later);
    tcase_add_test(tcase, hints_are_stepped_at_once);
    tcase_add_test(tcase, without_memory_a_hint_is_dropped);
    suite_add_tcase(suite, tcase);
    return suite;
}
