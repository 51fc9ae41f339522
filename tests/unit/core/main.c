// Runs the unit tests of daemon/core.
#include <check.h>
#include <stdlib.h>

#include "tests/unit/core/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(lease_suite());
    int failed;

    srunner_add_suite(runner, alarm_suite());
    srunner_add_suite(runner, book_suite());
    srunner_add_suite(runner, broker_suite());
    srunner_add_suite(runner, lock_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, server_clock_suite());
    srunner_add_suite(runner, session_suite());
    srunner_add_suite(runner, stats_suite());
    srunner_add_suite(runner, straggler_suite());
    srunner_add_suite(runner, trace_suite());
    srunner_add_suite(runner, walk_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
