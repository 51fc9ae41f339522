// Random walks: many seeds, every invariant after each step, and at the end everything in order.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core/suites.h"
#include "tests/unit/core/walk.h"

#define SEEDS 200
#define STEPS 2000

static struct walk walk;

static void walk_far(uint64_t seed, int steps, bool has_text)
{
    if (getenv("WALK_TEXT"))
        (void)fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    walk_init(&walk, seed, has_text);
    for (int i = 0; i < steps; i++)
        walk_step(&walk);
}

// Every request is answered, nothing is left in the backend, nothing is left to do.
static void end_well(void)
{
    walk_heal(&walk);
    walk_rest(&walk, 20000);
    ck_assert_int_eq(walk.pending_count, 0);
    walk_close_all(&walk);
    walk_rest(&walk, 12000);
    ck_assert_uint_eq(broker_kept_count(walk.world.broker), 0);
    ck_assert(broker_next_deadline(walk.world.broker) == INT64_MAX);
    for (int key = 0; key < MODEL_KEYS; key++)
        ck_assert(!walk.model.keys[key].serial ||
                  walk.model.keys[key].expires_ms <= walk.world.now_ms);
}

START_TEST(walks)
{
    walk_far((uint64_t)_i * 7919, STEPS, false);
    ck_assert_int_gt(walk.granted, 50);
    ck_assert_int_gt(walk.refused, 100);
    if (_i % 5)
        end_well();
    walk_deinit(&walk); // also from the midst of it
}
END_TEST

START_TEST(walks_meet_everything)
{
    walk_far(42, 20 * STEPS, false);
    ck_assert_int_gt(walk.lost, 100);
    ck_assert_int_gt(walk.suspected, 20);
    ck_assert_int_gt(walk.stale, 20);
    ck_assert_int_gt(walk.extended, 50);
    walk_deinit(&walk);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_trace)
{
    walk_far((uint64_t)_i, STEPS, true);

    char *first = strdup(world_text(&walk.world));

    walk_deinit(&walk);
    walk_far((uint64_t)_i, STEPS, true);
    ck_assert(strcmp(first, world_text(&walk.world)) == 0);
    ck_assert_uint_gt(strlen(first), 100000);
    walk_deinit(&walk);
    free(first);
}
END_TEST

START_TEST(walks_drain)
{
    struct event drain = {.kind = EVENT_DRAIN};

    walk_far((uint64_t)_i + 1000, STEPS / 4, false);
    world_step(&walk.world, &drain);
    walk.model.is_healthy = true;
    walk_rest(&walk, 3000);
    walk_close_all(&walk);
    walk_rest(&walk, 8000);
    ck_assert(broker_is_drained(walk.world.broker));
    walk_deinit(&walk);
}
END_TEST

Suite *walk_suite(void)
{
    Suite *suite = suite_create("walk");
    TCase *tests = tcase_create("walks");

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, walks, 0, SEEDS);
    tcase_add_test(tests, walks_meet_everything);
    tcase_add_loop_test(tests, the_same_seed_gives_the_same_trace, 0, 4);
    tcase_add_loop_test(tests, walks_drain, 0, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
