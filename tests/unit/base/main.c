// Runs the unit tests of daemon/base.
#include <check.h>
#include <stdlib.h>

#include "tests/unit/base/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(log_suite());
    int failed;

    srunner_add_suite(runner, rng_suite());
    srunner_add_suite(runner, clock_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
