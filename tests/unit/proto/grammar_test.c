// What is JSON and what is not, as the reader of requests sees it.
#include <stdlib.h>
#include <string.h>

#include "proto/json_scan.h"
#include "proto/request.h"
#include "tests/unit/proto/suites.h"

static struct request request;
static struct reply refusal;

// The line is copied to a block of its own size, so that a read past its end is seen.
static enum error_code refusal_of(const char *line, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    int r;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, line, length);
    r = request_parse(copy, length, &request, &refusal);
    free(copy);
    ck_assert_int_eq(r, REQUEST_E_REFUSED);
    return refusal.error;
}

// A good value is refused only for being that of a field that does not exist.
static void assert_value_is(const char *value, size_t value_bytes, bool is_good)
{
    static const char head[] = "{\"id\":7,\"op\":\"ping\",\"x\":";
    char line[200];
    size_t length = sizeof(head) - 1;

    ck_assert_uint_lt(length + value_bytes, sizeof(line));
    memcpy(line, head, length);
    memcpy(line + length, value, value_bytes);
    length += value_bytes;
    line[length++] = '}';
    ck_assert_msg(refusal_of(line, length) == (is_good ? ERROR_BAD_FIELD : ERROR_MALFORMED), "%s",
                  value);
    ck_assert_int_eq(refusal.id.kind, is_good ? REQUEST_ID_NUMBER : REQUEST_ID_NONE);
}

START_TEST(good_json_is_taken)
{
    static const char *const good[] = {"{}",
                                       "[]",
                                       " { } ",
                                       "null",
                                       "true",
                                       "false",
                                       "\"\"",
                                       "0",
                                       "-0",
                                       "-1",
                                       "12",
                                       "1.5",
                                       "1e9",
                                       "1E-9",
                                       "1.25e+10",
                                       "[1,2,3]",
                                       "[[[]]]",
                                       "{\"a\":{\"b\":[1]}}",
                                       "\t{\r\"a\" : 1 , \"b\":\"c\"}",
                                       "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                       "\"\\u0041\\u00e9\"",
                                       "\"\\ud83d\\ude00\"",
                                       "\"\\uFFFF\"",
                                       "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
                                       "\"\x7F\"",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "{\"a\":1,\"A\":2}",
                                       "{\"id\":{\"id\":1}}",
                                       "[{\"a\":1},{\"a\":1}]"};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(good); i++)
        assert_value_is(good[i], strlen(good[i]), true);
}
END_TEST

static const char *const bad_json[] = {"",
                                       " ",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       "{]",
                                       "[}",
                                       "{\"a\"}",
                                       "{\"a\":}",
                                       "{a:1}",
                                       "{'a':1}",
                                       "{\"a\":1,}",
                                       "[1,]",
                                       "[,1]",
                                       "{,}",
                                       "[1 2]",
                                       "{\"a\":1 \"b\":2}",
                                       "{1:2}",
                                       "nul",
                                       "nulll",
                                       "True",
                                       "NaN",
                                       "Infinity",
                                       "-",
                                       "+1",
                                       "01",
                                       "-01",
                                       "1.",
                                       ".5",
                                       "1e",
                                       "1e+",
                                       "0x10",
                                       "1_0",
                                       "\"",
                                       "\"a",
                                       "\"\\\"",
                                       "\"\\",
                                       "\"\\x41\"",
                                       "\"\\u12\"",
                                       "\"\\u12g4\"",
                                       "\"\\u",
                                       "\"\\u0000\"",
                                       "\"\\ud800\"",
                                       "\"\\udc00\"",
                                       "\"\\ud800\\u0041\"",
                                       "\"\\ud800\\ud800\"",
                                       "\"\\ud800x\"",
                                       "\"\t\"",
                                       "\"\n\"",
                                       "\"\x01\"",
                                       "\"\x80\"",
                                       "\"\xC0\xAF\"",
                                       "\"\xED\xA0\x80\"",
                                       "\"\xF4\x90\x80\x80\"",
                                       "\"\xE2\x82\"",
                                       "\"\xFF\"",
                                       "{} {}",
                                       "{}x",
                                       "1 2",
                                       "[[[[]]]]",
                                       "{\"a\":{\"a\":{\"a\":{}}}}",
                                       "9223372036854775808",
                                       "-9223372036854775809",
                                       "99999999999999999999999999",
                                       "1e999",
                                       "{\"a\":1,\"b\":2,\"a\":3}",
                                       "{\"key\":1,\"\\u006bey\":2}",
                                       "[1,{\"b\":1,\"b\":1}]",
                                       "{\"\":1,\"\":2}",
                                       "{\"\xC3\xA9\":1,\"\\u00E9\":2}",
                                       "{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}",
                                       "{\"\\/\":1,\"/\":1}",
                                       "{\"\\u0000\":1}",
                                       "\xEF\xBB\xBF{}",
                                       "// c\n{}"};

START_TEST(bad_json_is_refused)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(bad_json); i++)
        assert_value_is(bad_json[i], strlen(bad_json[i]), false);
    assert_value_is("{}\0", 3, false);
    assert_value_is("\"a\0b\"", 5, false);
    assert_value_is("\"\\\0\"", 4, false);
    assert_value_is("\0", 1, false);
    assert_value_is("1\0", 2, false);
    assert_value_is("true\0", 5, false);
    assert_value_is("1.5\0", 4, false);
}
END_TEST

START_TEST(every_prefix_of_an_object_is_refused)
{
    static const char text[] =
        "{\"a\":[1.5e3,true,null,\"\\ud83d\\ude00\xC3\xA9\"],\"b\":{\"c\":-1}}";

    for (size_t length = 0; length < sizeof(text) - 1; length++)
        ck_assert_int_eq(refusal_of(text, length), ERROR_MALFORMED);
    ck_assert_int_eq(refusal_of(text, sizeof(text) - 1), ERROR_BAD_FIELD);
}
END_TEST

static bool scan(const char *line, unsigned depth_max, size_t members_max)
{
    return json_scan(line, strlen(line), depth_max, members_max);
}

START_TEST(depth_and_members_are_counted)
{
    static const char members[] = "{\"a\":{\"b\":1},\"c\":[{\"d\":1}]}";
    static const char texts[] = "{\"[[[:::\":\"\\\"[[[{{{:::\\\\\"}";

    ck_assert(scan(members, 3, 4));
    ck_assert(!scan(members, 3, 3));
    ck_assert(!scan(members, 2, 4));
    ck_assert(scan("[[],{},[]]", 2, 0));
    ck_assert(scan(texts, 1, 1));
    ck_assert(!scan("]", 9, 9));
    ck_assert(!scan("[]][", 9, 9));
    ck_assert(json_scan("\"\\", 2, 1, 1));
    ck_assert(json_scan("", 0, 0, 0));
}
END_TEST

START_TEST(texts_are_unescaped)
{
    static const char line[] = "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\","
                               "\"note\":\"a\\n\\u00e9\\ud83d\\ude00\\\\\\/\"}";

    ck_assert_int_eq(request_parse(line, sizeof(line) - 1, &request, &refusal), 0);
    ck_assert_str_eq(request.note, "a\n\xC3\xA9\xF0\x9F\x98\x80\\/");
}
END_TEST

Suite *grammar_suite(void)
{
    Suite *suite = suite_create("grammar");
    TCase *tcase = tcase_create("grammar");

    tcase_add_test(tcase, good_json_is_taken);
    tcase_add_test(tcase, bad_json_is_refused);
    tcase_add_test(tcase, every_prefix_of_an_object_is_refused);
    tcase_add_test(tcase, depth_and_members_are_counted);
    tcase_add_test(tcase, texts_are_unescaped);
    suite_add_tcase(suite, tcase);
    return suite;
}
