// Who this daemon is: secrets that differ, and a host name fit for a token.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "daemon/io/identity.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/suites.h"

START_TEST(ids_are_hex_and_all_differ)
{
    struct identity one;
    struct identity two;

    ck_assert_int_eq(identity_init(&one), 0);
    ck_assert_int_eq(identity_init(&two), 0);
    ck_assert_uint_eq(strspn(one.secret_instance, "0123456789abcdef"), 32);
    ck_assert_uint_eq(strspn(one.public_instance, "0123456789abcdef"), 32);
    ck_assert_uint_eq(strlen(one.secret_instance), 32);
    ck_assert_str_ne(one.secret_instance, one.public_instance);
    ck_assert_str_ne(one.secret_instance, two.secret_instance);
    ck_assert_uint_ne(one.seed, two.seed);
}
END_TEST

START_TEST(the_host_fits_into_a_token)
{
    struct identity identity;

    ck_assert_int_eq(identity_init(&identity), 0);
    ck_assert_uint_ge(strlen(identity.host), 1);
    ck_assert_uint_le(strlen(identity.host), LB_HOST_BYTES_MAX);
    ck_assert_ptr_null(strchr(identity.host, ':'));
}
END_TEST

static const char *host_of(const char *name)
{
    static struct identity identity;

    fault_call_host(name);
    ck_assert_int_eq(identity_init(&identity), 0);
    fault_call_host(NULL);
    return identity.host;
}

START_TEST(what_a_host_is_called_is_no_part_of_a_tokens_grammar)
{
    char long_name[65];

    ck_assert_str_eq(host_of("web-1.example_org"), "web-1.example_org");
    ck_assert_str_eq(host_of("a:b c/d\n"), "a_b_c_d_");
    ck_assert_str_eq(host_of("h\303\266st"), "h__st");
    ck_assert_str_eq(host_of(""), "unknown");
    fault_call_fail("gethostname", ENAMETOOLONG, 1, 1);
    ck_assert_str_eq(host_of("name"), "unknown");
    memset(long_name, 'a', 64);
    long_name[64] = '\0';
    ck_assert_uint_eq(strlen(host_of(long_name)), LB_HOST_BYTES_MAX);
}
END_TEST

START_TEST(without_random_numbers_there_is_no_identity)
{
    struct identity identity;

    for (int draw = 1; draw <= 3; draw++) {
        fault_call_fail("getentropy", ENOSYS, draw, 1);
        ck_assert_int_eq(identity_init(&identity), -ENOSYS);
    }
    fault_call_fail("getentropy", ENOSYS, 4, 1);
    ck_assert_int_eq(identity_init(&identity), 0);
}
END_TEST

Suite *identity_suite(void)
{
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");

    tcase_add_test(tcase, ids_are_hex_and_all_differ);
    tcase_add_test(tcase, the_host_fits_into_a_token);
    tcase_add_test(tcase, what_a_host_is_called_is_no_part_of_a_tokens_grammar);
    tcase_add_test(tcase, without_random_numbers_there_is_no_identity);
    suite_add_tcase(suite, tcase);
    return suite;
}
