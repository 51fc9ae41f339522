// Who this daemon is: secrets that differ, and a host name fit for a token.
#include <check.h>
#include <string.h>

#include "daemon/io/identity.h"
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

Suite *identity_suite(void)
{
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");

    tcase_add_test(tcase, ids_are_hex_and_all_differ);
    tcase_add_test(tcase, the_host_fits_into_a_token);
    suite_add_tcase(suite, tcase);
    return suite;
}
