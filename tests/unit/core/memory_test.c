// Memory that runs out at each place in turn, and memory that is given back in every state.
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/core/fault.h"
#include "tests/unit/core/suites.h"
#include "tests/unit/core/world.h"

// Everything that takes memory: sessions, locks, claims, rivals, extensions, questions, pages.
static const char story[] = "0 redis> up\n"
                            "0 A> open uid=0\n"
                            "0 B> open\n"
                            "1 A> 1 acquire a ttl=3000\n"
                            "2 redis> all ok fence=1\n"
                            "3 B> 1 acquire a wait=-1\n"
                            "3 B> 2 acquire b wait=-1\n"
                            "4 redis> all busy broker host=h2 ttl_left=900\n"
                            "5 A> 2 extend a\n"
                            "5 A> 3 extend a\n"
                            "6 redis> all ok\n"
                            "7 redis> all ok\n"
                            "8 A> 4 query b\n"
                            "8 A> 5 break c\n"
                            "9 redis> all ok\n"
                            "10 A> 6 list\n"
                            "11 A> 7 release a\n"
                            "12 redis> all ok fence=2\n"
                            "13 redis> all ok fence=3\n"
                            "14 B> 3 acquire b\n"
                            "15 B> close\n"
                            "16 redis> all ok fence=4\n"
                            "17 redis> all ok fence=5\n"
                            "18 A> close\n"
                            "19 redis> all ok fence=6\n";

static int refused, closed;

static void observe(struct world *unused, const struct effect *effect)
{
    (void)unused;
    closed += effect->kind == EFFECT_CLOSE;
    if (effect->kind != EFFECT_REPLY || effect->reply.error != ERROR_QUOTA)
        return;
    ck_assert_str_eq(effect->reply.limit, "memory");
    refused++;
}

static void play(long fail_at)
{
    struct world world;

    refused = closed = 0;
    world_init(&world, 1, false);
    world.observe = observe;
    fault_set(fail_at);
    world_play_all(&world, story);
    world_run(&world, world.now_ms + 20000);
    ck_assert_uint_eq(broker_kept_count(world.broker), 0);
    ck_assert(broker_next_deadline(world.broker) == INT64_MAX);
    world_deinit(&world);
}

// One request, or one connection, is what it costs at most.
START_TEST(each_allocation_fails_once)
{
    long count;
    int kinds[3] = {0};

    play(-1);
    count = fault_count();
    ck_assert_int_gt(count, 12);
    ck_assert_int_eq(refused + closed, 0);
    for (long i = 0; i < count; i++) {
        play(i);
        ck_assert_int_le(refused + closed, 1);
        kinds[0] += refused;
        kinds[1] += closed;
        kinds[2] += !refused && !closed;
    }
    ck_assert_int_eq(kinds[1], 2); // two sessions
    ck_assert_int_eq(kinds[2], 1); // nobody knows the rival
    fault_set(-1);
}
END_TEST

START_TEST(a_broker_without_memory_is_none)
{
    struct broker_config config = {.ttl_max_ms = 30000};
    struct broker *broker = NULL;

    fault_set(0);
    fault_arm();
    ck_assert_int_eq(broker_new(&config, 1, &broker), -ENOMEM);
    fault_disarm();
    fault_set(-1);
    ck_assert_ptr_null(broker);
    broker_free(NULL);
}
END_TEST

// The story ends after each of its lines: all is freed, which the leak checker sees.
START_TEST(free_in_every_state)
{
    for (size_t end = 0; end < sizeof(story); end++) {
        struct world world;
        char part[sizeof(story)];

        if (story[end] != '\n')
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)end, story);
        world_init(&world, 1, false);
        world_play_all(&world, part);
        world_deinit(&world);
    }
}
END_TEST

// States that the story does not come by.
START_TEST(free_in_rare_states)
{
    static const char *const ends[] = {
        "10 A> 2 release a\n",
        "10 A> 2 release a\n11 A> close\n",
        "10 A> 2 extend a\n11 A> 3 extend a\n12 A> 4 extend a\n",
        "10 A> 2 extend a\n11 A> 3 extend a\n12 A> close\n",
        "10 redis> down\n11 A> 2 release a\n",
        "10 A> cut\n",
        "2600 time>\n",
        "2600 time>\n2601 A> cut\n",
        "9000 time>\n",
        "10 A> 2 query x\n11 A> close\n",
        "10 broker> drain\n",
        "10 A> 2 acquire z wait=-1\n11 redis> all unknown\n12 A> close\n",
    };
    struct world world;

    world_init(&world, 1, false);
    world_play_all(&world, "0 redis> up\n0 A> open\n0 A> 1 acquire a ttl=3000\n"
                           "1 redis> all ok fence=1\n");
    world_play_all(&world, ends[_i]);
    world_deinit(&world);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");

    tcase_add_test(tests, each_allocation_fails_once);
    tcase_add_test(tests, a_broker_without_memory_is_none);
    tcase_add_test(tests, free_in_every_state);
    tcase_add_loop_test(tests, free_in_rare_states, 0, 12);
    suite_add_tcase(suite, tests);
    return suite;
}
