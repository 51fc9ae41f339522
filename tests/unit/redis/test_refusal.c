// Which error replies mean that nothing was done.
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/refusal.h"
#include "proto/macros.h"
#include "tests/unit/redis/suites.h"

START_TEST(test_certain)
{
    static const char *const texts[] = {
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "NOAUTH Authentication required.",
        "BUSY Redis is busy running a script.",
        "MOVED 3999 127.0.0.1:6381",
        "ASK 3999 127.0.0.1:6381",
        "CLUSTERDOWN The cluster is down",
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Redis is configured to save RDB snapshots",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "NOFENCE no fence is left",
        "ERR The user executing the script can't run this command or subcommand script: 12",
        "ERR Error running script (call to f_12): @user_script:1: -OOM command not allowed",
        "ERR unknown command 'EVALSHA', with args beginning with:",
        "ERR max number of clients reached",
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(texts); i++)
        ck_assert_msg(refusal_classify(texts[i]) == REFUSAL_CERTAIN, "%s", texts[i]);
}
END_TEST

START_TEST(test_role)
{
    ck_assert_int_eq(refusal_classify("READONLY You can't write against a read only replica."),
                     REFUSAL_ROLE);
    ck_assert_int_eq(refusal_classify("MASTERDOWN Link with MASTER is down"), REFUSAL_ROLE);
    ck_assert_int_eq(refusal_classify("LOADING Redis is loading the dataset in memory"),
                     REFUSAL_ROLE);
    ck_assert_int_eq(refusal_classify("NOSCRIPT No matching script."), REFUSAL_NOSCRIPT);
}
END_TEST

START_TEST(test_unknown)
{
    static const char *const texts[] = {
        "",
        " ",
        "ERR",
        "ERR upstream timeout",
        "ERR Connection timed out",
        "upstream failure",
        "OOMX what",
        "oom what",
        "OOM\twhat",
        "UNKNOWNCODE what",
        "AVERYLONGCODETHATISNOCODEATALLBUTNOISE what",
        "Error running script",
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(texts); i++)
        ck_assert_msg(refusal_classify(texts[i]) == REFUSAL_UNKNOWN, "%s", texts[i]);
}
END_TEST

START_TEST(test_code)
{
    char code[REFUSAL_CODE_BYTES_MAX + 1];

    refusal_code("NOAUTH Authentication required.", code);
    ck_assert_str_eq(code, "NOAUTH");
    refusal_code("OOM", code);
    ck_assert_str_eq(code, "OOM");
    refusal_code("ABCDEFGHIJKLMNOPQRSTUVWXYZ01234 x", code);
    ck_assert_str_eq(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ01234");
    refusal_code("ABCDEFGHIJKLMNOPQRSTUVWXYZ012345 x", code);
    ck_assert_str_eq(code, "");
    refusal_code("lb1:secret", code);
    ck_assert_str_eq(code, "");
}
END_TEST

START_TEST(test_hint)
{
    static const char *const codes[] = {"OOM",     "READONLY",   "NOPERM", "NOAUTH", "WRONGPASS",
                                        "MISCONF", "NOREPLICAS", "BUSY",   "LOADING"};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(codes); i++) {
        const char *hint = refusal_hint(codes[i]);

        ck_assert_msg(hint && strlen(hint) < 80, "%s", codes[i]);
    }
    ck_assert_ptr_nonnull(strstr(refusal_hint("OOM"), "maxmemory"));
    ck_assert_ptr_nonnull(strstr(refusal_hint("BUSY"), "SCRIPT KILL"));
    ck_assert_ptr_null(refusal_hint("ERR"));
    ck_assert_ptr_null(refusal_hint(""));
}
END_TEST

Suite *refusal_suite(void)
{
    Suite *suite = suite_create("redis/refusal");
    TCase *tcase = tcase_create("pure");

    tcase_add_test(tcase, test_certain);
    tcase_add_test(tcase, test_role);
    tcase_add_test(tcase, test_unknown);
    tcase_add_test(tcase, test_code);
    tcase_add_test(tcase, test_hint);
    suite_add_tcase(suite, tcase);
    return suite;
}
