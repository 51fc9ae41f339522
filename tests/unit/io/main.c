// Runs the unit tests of daemon/io.
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/unit/io/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(inbox_suite());
    int failed;

    (void)signal(SIGPIPE, SIG_IGN);
    srunner_add_suite(runner, accept_suite());
    srunner_add_suite(runner, conn_suite());
    srunner_add_suite(runner, conn_end_suite());
    srunner_add_suite(runner, hearing_suite());
    srunner_add_suite(runner, identity_suite());
    srunner_add_suite(runner, lateness_suite());
    srunner_add_suite(runner, launch_suite());
    srunner_add_suite(runner, listener_suite());
    srunner_add_suite(runner, loop_suite());
    srunner_add_suite(runner, notify_suite());
    srunner_add_suite(runner, pump_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
