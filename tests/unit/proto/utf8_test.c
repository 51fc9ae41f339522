// The decoder of UTF-8.
#include "proto/utf8.h"

#include "tests/unit/proto/suites.h"

START_TEST(utf8_is_strict)
{
    ck_assert_uint_eq(utf8_char_bytes("", 0), 0);
    ck_assert_uint_eq(utf8_char_bytes("a", 1), 1);
    ck_assert_uint_eq(utf8_char_bytes("\0", 1), 1);
    ck_assert_uint_eq(utf8_char_bytes("\xC3\xA9", 2), 2);
    ck_assert_uint_eq(utf8_char_bytes("\xC3\xA9", 1), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xC1\xBF", 2), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xE0\xA0\x80", 3), 3);
    ck_assert_uint_eq(utf8_char_bytes("\xE0\x9F\xBF", 3), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xED\x9F\xBF", 3), 3);
    ck_assert_uint_eq(utf8_char_bytes("\xED\xA0\x80", 3), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xE2\x82"
                                      "a",
                                      3),
                      0);
    ck_assert_uint_eq(utf8_char_bytes("\xF0\x90\x80\x80", 4), 4);
    ck_assert_uint_eq(utf8_char_bytes("\xF0\x8F\xBF\xBF", 4), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xF4\x8F\xBF\xBF", 4), 4);
    ck_assert_uint_eq(utf8_char_bytes("\xF4\x90\x80\x80", 4), 0);
    ck_assert_uint_eq(utf8_char_bytes("\xF5\x80\x80\x80", 4), 0);
    ck_assert_uint_eq(utf8_char_bytes("\x80", 1), 0);
}
END_TEST

Suite *utf8_suite(void)
{
    Suite *suite = suite_create("utf8");
    TCase *tcase = tcase_create("utf8");

    tcase_add_test(tcase, utf8_is_strict);
    suite_add_tcase(suite, tcase);
    return suite;
}
