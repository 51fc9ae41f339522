// Runs the unit tests of daemon/memory.
#include <check.h>
#include <stdlib.h>

#include "tests/unit/memory/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(memory_backend_suite());
    int failed;

    srunner_add_suite(runner, state_file_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
