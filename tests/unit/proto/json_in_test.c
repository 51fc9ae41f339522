// The reader of requests: what is JSON to it and what is not, to the last limit.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_in.h"
#include "tests/unit/proto/suites.h"

static char space[LB_REQUEST_LINE_BYTES_MAX];
static struct json_object object;

static bool reads(const char *line)
{
    return json_in(line, strlen(line), space, &object);
}

// The line read is {"a":...}, and this its value.
static const struct json_value *value_of(const char *line)
{
    ck_assert_msg(reads(line), "%s", line);
    ck_assert_uint_eq(object.count, 1);
    ck_assert_str_eq(object.members[0].name, "a");
    return &object.members[0].value;
}

START_TEST(members_come_in_order)
{
    ck_assert(reads(" {\t\"b\" : 1 ,\r\"a\":\"x\",\n\"\":null} "));
    ck_assert_uint_eq(object.count, 3);
    ck_assert_str_eq(object.members[0].name, "b");
    ck_assert_int_eq(object.members[0].value.integer, 1);
    ck_assert_str_eq(object.members[1].name, "a");
    ck_assert_str_eq(object.members[1].value.text, "x");
    ck_assert_str_eq(object.members[2].name, "");
    ck_assert(reads("{}"));
    ck_assert_uint_eq(object.count, 0);
}
END_TEST

START_TEST(kinds_are_told_apart)
{
    static const struct {
        const char *line;
        enum json_kind kind;
    } rows[] = {
        {"{\"a\":null}", JSON_KIND_NULL},
        {"{\"a\":true}", JSON_KIND_TRUE},
        {"{\"a\":false}", JSON_KIND_FALSE},
        {"{\"a\":0}", JSON_KIND_INTEGER},
        {"{\"a\":0.0}", JSON_KIND_REAL},
        {"{\"a\":1e2}", JSON_KIND_REAL},
        {"{\"a\":-0E-0}", JSON_KIND_REAL},
        {"{\"a\":1e-999}", JSON_KIND_REAL},
        {"{\"a\":\"\"}", JSON_KIND_TEXT},
        {"{\"a\":{}}", JSON_KIND_OBJECT},
        {"{\"a\":{\"a\":[1,{}]}}", JSON_KIND_OBJECT},
        {"{\"a\":[ ]}", JSON_KIND_ARRAY},
        {"{\"a\":[1, 2 ,\"]\"]}", JSON_KIND_ARRAY},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(rows); i++)
        ck_assert_msg(value_of(rows[i].line)->kind == rows[i].kind, "%s", rows[i].line);
}
END_TEST

START_TEST(integers_have_64_bits)
{
    ck_assert_int_eq(value_of("{\"a\":9223372036854775807}")->integer, INT64_MAX);
    ck_assert_int_eq(value_of("{\"a\":-9223372036854775808}")->integer, INT64_MIN);
    ck_assert_int_eq(value_of("{\"a\":-0}")->integer, 0);
    ck_assert_int_eq(value_of("{\"a\":-17}")->integer, -17);
    ck_assert(!reads("{\"a\":9223372036854775808}"));
    ck_assert(!reads("{\"a\":-9223372036854775809}"));
    ck_assert(!reads("{\"a\":99999999999999999999999}"));
    ck_assert(!reads("{\"a\":1e999}"));
    ck_assert(!reads("{\"a\":-1e999}"));
}
END_TEST

START_TEST(texts_are_unescaped)
{
    const struct json_value *value;

    value = value_of("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t|\"}");
    ck_assert_str_eq(value->text, "\"\\/\b\f\n\r\t|");
    ck_assert_uint_eq(value->length, 9);
    ck_assert_str_eq(value_of("{\"a\":\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"}")->text,
                     "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    ck_assert_str_eq(value_of("{\"a\":\"\\ud800\\udc00\\udbff\\udfff\"}")->text,
                     "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
    ck_assert_str_eq(value_of("{\"a\":\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"}")->text,
                     "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF");
    ck_assert_str_eq(value_of("{\"\\u0061\":\"\xC3\xA9\x7F\xF0\x9F\x98\x80\"}")->text,
                     "\xC3\xA9\x7F\xF0\x9F\x98\x80");
}
END_TEST

static const char *const no_json[] = {
    "",
    " ",
    "1",
    "[]",
    "\"a\"",
    "null",
    "{",
    "}",
    "{}}",
    "{} {}",
    "{}x",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{\"a\":1 \"b\":2}",
    "{\"a\" 1}",
    "{a:1}",
    "{1:1}",
    "{'a':1}",
    "{\"a\":01}",
    "{\"a\":+1}",
    "{\"a\":-}",
    "{\"a\":.5}",
    "{\"a\":1.}",
    "{\"a\":1.e1}",
    "{\"a\":1e}",
    "{\"a\":1e+}",
    "{\"a\":0x1}",
    "{\"a\":1 2}",
    "{\"a\":nul}",
    "{\"a\":nulls}",
    "{\"a\":True}",
    "{\"a\":tru",
    "{\"a\":NaN}",
    "{\"a\":[}",
    "{\"a\":[1,]}",
    "{\"a\":[1 2]}",
    "{\"a\":]}",
    "{\"a\":[1}}",
    "{\"a\":{]}",
    "{\"a\":\"}",
    "{\"a\":\"\\\"}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u12\"}",
    "{\"a\":\"\\u12g4\"}",
    "{\"a\":\"\\u0000\"}",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":\"\\ud800x\"}",
    "{\"a\":\"\\ud800\\n\"}",
    "{\"a\":\"\\ud800\\u0041\"}",
    "{\"a\":\"\\ud800\\ue000\"}",
    "{\"a\":\"\\udc00\"}",
    "{\"a\":\"\\udfff\"}",
    "{\"a\":\"\n\"}",
    "{\"a\":\"\x1F\"}",
    "{\"a\":\"\xC3\"}",
    "{\"a\":\"\xC0\x80\"}",
    "{\"a\":\"\xED\xA0\x80\"}",
    "{\"a\":\"\xFF\"}",
    "{\"a\":1/**/}",
    "{\"a\":1}\v",
    "{\"a\":1,\"a\":1}",
    "{\"a\":1,\"\\u0061\":1}",
    "{\"b\":{\"a\":1,\"a\":2}}",
};

START_TEST(what_is_no_json)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(no_json); i++)
        ck_assert_msg(!reads(no_json[i]), "%s", no_json[i]);
}
END_TEST

// No line is read beyond its length, and a NUL in it is no end.
START_TEST(the_length_is_what_counts)
{
    ck_assert(json_in("{\"a\":1}garbage", 7, space, &object));
    ck_assert(!json_in("{\"a\":1}\0", 8, space, &object));
    ck_assert(!json_in("{\"a\":\"x\0y\"}", 11, space, &object));
    ck_assert(!json_in("{\"a\0\":1}", 8, space, &object));
    ck_assert(!json_in("{\"a\":1\0}", 8, space, &object));
}
END_TEST

START_TEST(one_name_in_two_objects)
{
    ck_assert(reads("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}"));
    ck_assert_uint_eq(object.count, 2);
}
END_TEST

START_TEST(depth_and_members_have_limits)
{
    char line[512] = "{";

    ck_assert(reads("{\"a\":[[[1]]]}"));
    ck_assert(!reads("{\"a\":[[[[1]]]]}"));
    ck_assert(reads("{\"a\":[{\"b\":{}}],\"c\":[{\"b\":{}}]}"));
    ck_assert(!reads("{\"a\":[{\"b\":{\"c\":{}}}]}"));
    for (int i = 0; i < LB_JSON_MEMBERS_MAX; i++)
        (void)snprintf(line + strlen(line), 16, "%s\"%d\":1", i ? "," : "", i);
    (void)strcat(line, "}");
    ck_assert(reads(line));
    ck_assert_uint_eq(object.count, LB_JSON_MEMBERS_MAX);
    (void)strcpy(line + strlen(line) - 1, ",\"x\":1}");
    ck_assert(!reads(line));
    ck_assert(!reads("{\"a\":[{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1},"
                     "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1}]}"));
}
END_TEST

// As many bytes as the line has are enough for its texts.
START_TEST(texts_fit_their_space)
{
    static const char *const lines[] = {"{\"a\":\"b\",\"c\":\"d\"}", "{\"\":\"\",\"1\":[1.5e300]}",
                                        "{\"a\":1.5e30", "{\"a\":[\"\",\"\",\"\",\"\",1e10]}"};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(lines); i++) {
        size_t length = strlen(lines[i]);
        char *exact = malloc(length); // a sanitizer sees what goes beyond

        ck_assert_ptr_nonnull(exact);
        ck_assert_int_eq(json_in(lines[i], length, exact, &object), i != 2);
        free(exact);
    }
}
END_TEST

Suite *json_in_suite(void)
{
    Suite *suite = suite_create("json_in");
    TCase *tcase = tcase_create("json_in");

    tcase_add_test(tcase, members_come_in_order);
    tcase_add_test(tcase, kinds_are_told_apart);
    tcase_add_test(tcase, integers_have_64_bits);
    tcase_add_test(tcase, texts_are_unescaped);
    tcase_add_test(tcase, what_is_no_json);
    tcase_add_test(tcase, the_length_is_what_counts);
    tcase_add_test(tcase, one_name_in_two_objects);
    tcase_add_test(tcase, depth_and_members_have_limits);
    tcase_add_test(tcase, texts_fit_their_space);
    suite_add_tcase(suite, tcase);
    return suite;
}
