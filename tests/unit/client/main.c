// Runs the suites of the client library and the tool's pure parts.
#include <check.h>
#include <stdlib.h>

#include "tests/unit/client/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(calls_suite());
    int failed;

    srunner_add_suite(runner, alloc_suite());
    srunner_add_suite(runner, grant_suite());
    srunner_add_suite(runner, client_suite());
    srunner_add_suite(runner, sync_suite());
    srunner_add_suite(runner, cli_suite());
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
