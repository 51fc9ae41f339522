// The generator: repeatable, seeded, fair within a bound.
#include <check.h>

#include "daemon/base/rng.h"
#include "tests/unit/base/suites.h"

// xoshiro256** on the state 1, 2, 3, 4: its published first outputs.
START_TEST(test_known_outputs)
{
    struct rng rng = {.state = {1, 2, 3, 4}};

    ck_assert_uint_eq(rng_next(&rng), 11520);
    ck_assert_uint_eq(rng_next(&rng), 0);
    ck_assert_uint_eq(rng_next(&rng), 1509978240);
    ck_assert_uint_eq(rng_next(&rng), 1215971899390074240);
}
END_TEST

// splitmix64 from 0 begins with this number.
START_TEST(test_known_seed)
{
    struct rng rng;

    rng_init(&rng, 0);
    ck_assert_uint_eq(rng.state[0], 0xe220a8397b1dcdafu);
    ck_assert_uint_eq(rng.state[1], 0x6e789e6aa1b965f4u);
}
END_TEST

START_TEST(test_seed_decides)
{
    struct rng first, same, other;
    int differences = 0;

    rng_init(&first, 42);
    rng_init(&same, 42);
    rng_init(&other, 43);
    for (int i = 0; i < 100; i++) {
        uint64_t number = rng_next(&first);

        ck_assert_uint_eq(number, rng_next(&same));
        differences += number != rng_next(&other);
    }
    ck_assert_int_eq(differences, 100);
}
END_TEST

START_TEST(test_below_is_within_bound)
{
    struct rng rng;
    int seen[7] = {0};

    rng_init(&rng, 1);
    for (int i = 0; i < 70000; i++) {
        uint64_t number = rng_below(&rng, 7);

        ck_assert_uint_lt(number, 7);
        seen[number]++;
    }
    for (int i = 0; i < 7; i++) {
        ck_assert_int_gt(seen[i], 9500);
        ck_assert_int_lt(seen[i], 10500);
    }
}
END_TEST

START_TEST(test_below_at_the_edges)
{
    struct rng rng;

    rng_init(&rng, 1);
    ck_assert_uint_eq(rng_below(&rng, 0), 0);
    ck_assert_uint_eq(rng_below(&rng, 1), 0);
    for (int i = 0; i < 100; i++) {
        ck_assert_uint_le(rng_below(&rng, UINT64_MAX), UINT64_MAX - 1);
        ck_assert_uint_lt(rng_below(&rng, (UINT64_MAX / 2) + 2), (UINT64_MAX / 2) + 2);
    }
}
END_TEST

Suite *rng_suite(void)
{
    Suite *suite = suite_create("rng");
    TCase *tests = tcase_create("rng");

    tcase_add_test(tests, test_known_outputs);
    tcase_add_test(tests, test_known_seed);
    tcase_add_test(tests, test_seed_decides);
    tcase_add_test(tests, test_below_is_within_bound);
    tcase_add_test(tests, test_below_at_the_edges);
    suite_add_tcase(suite, tests);
    return suite;
}
