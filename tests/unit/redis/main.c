// Runs every suite of daemon/redis.
#include <stdlib.h>

#include "daemon/base/log.h"
#include "tests/unit/redis/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(token_suite());
    int failed;

    log_set_level(LOG_LEVEL_ERROR);
    srunner_add_suite(runner, command_suite());
    srunner_add_suite(runner, refusal_suite());
    srunner_add_suite(runner, resp_suite());
    srunner_add_suite(runner, handshake_suite());
    srunner_add_suite(runner, scripts_suite());
    srunner_add_suite(runner, queue_suite());
    srunner_add_suite(runner, late_suite());
    srunner_add_suite(runner, epoch_suite());
    srunner_add_suite(runner, uplink_suite());
    srunner_add_suite(runner, trouble_suite());
    srunner_add_suite(runner, libuv_suite());
    srunner_add_suite(runner, channel_suite());
    srunner_add_suite(runner, channel_trouble_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, addresses_suite());
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
