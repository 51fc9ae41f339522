// Runs every suite of proto/; exits with 1 when a test failed.
#include "tests/unit/proto/suites.h"

int main(void)
{
    SRunner *runner = srunner_create(buf_suite());
    int failed;

    srunner_add_suite(runner, framing_suite());
    srunner_add_suite(runner, utf8_suite());
    srunner_add_suite(runner, json_out_suite());
    srunner_add_suite(runner, json_in_suite());
    srunner_add_suite(runner, grammar_suite());
    srunner_add_suite(runner, request_suite());
    srunner_add_suite(runner, refusal_suite());
    srunner_add_suite(runner, reply_suite());
    srunner_add_suite(runner, incoming_suite());
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
