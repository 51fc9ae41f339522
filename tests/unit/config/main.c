// Runs the unit tests of config.
#include <check.h>
#include <stdlib.h>

#include "tests/unit/config/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(backend_url_suite());
    int failed;

    srunner_add_suite(runner, bytes_suite());
    srunner_add_suite(runner, config_suite());
    srunner_add_suite(runner, config_fault_suite());
    srunner_add_suite(runner, config_file_suite());
    srunner_add_suite(runner, config_print_suite());
    srunner_add_suite(runner, option_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
