// The JSON reader and writer by themselves.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_in.h"
#include "proto/json_out.h"
#include "proto/json_text.h"
#include "proto/utf8.h"
#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

// The text is copied to a block of its own size, so that a read past its end is seen.
static bool is_json(const char *text, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    struct json_value value;
    bool is_good;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, length);
    is_good = json_in_check(copy, length, 4, 16, &value);
    free(copy);
    return is_good;
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
                                       "[[[[]]]]",
                                       "{\"a\":{\"b\":[1]}}",
                                       "\t{\r\"a\" : 1 , \"b\":\"c\"}",
                                       "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                       "\"\\u0041\\u00e9\"",
                                       "\"\\ud83d\\ude00\"",
                                       "\"\\uFFFF\"",
                                       "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
                                       "\"\x7F\"",
                                       "99999999999999999999999999",
                                       "{\"a\":1,\"a\":2}"};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(good); i++)
        ck_assert_msg(is_json(good[i], strlen(good[i])), "%s", good[i]);
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
                                       "[[[[[]]]]]",
                                       "{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}",
                                       "\xEF\xBB\xBF{}",
                                       "// c\n{}"};

START_TEST(bad_json_is_refused)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(bad_json); i++)
        ck_assert_msg(!is_json(bad_json[i], strlen(bad_json[i])), "%s", bad_json[i]);
    ck_assert(!is_json("{}\0", 3));
    ck_assert(!is_json("\"a\0b\"", 5));
    ck_assert(!is_json("\"\\\0\"", 4));
    ck_assert(!is_json("\0", 1));
}
END_TEST

START_TEST(every_prefix_of_an_object_is_refused)
{
    static const char text[] =
        "{\"a\":[1.5e3,true,null,\"\\ud83d\\ude00\xC3\xA9\"],\"b\":{\"c\":-1}}";

    for (size_t length = 0; length < sizeof(text) - 1; length++)
        ck_assert(!is_json(text, length));
    ck_assert(is_json(text, sizeof(text) - 1));
}
END_TEST

START_TEST(members_are_counted_in_all)
{
    struct json_value value;
    const char *text = "{\"a\":{\"b\":1},\"c\":[{\"d\":1}]}";

    ck_assert(json_in_check(text, strlen(text), 4, 4, &value));
    ck_assert(!json_in_check(text, strlen(text), 4, 3, &value));
}
END_TEST

static struct json_value parse(const char *text)
{
    struct json_value value = {.kind = JSON_NULL};

    ck_assert(json_in_check(text, strlen(text), 8, SIZE_MAX, &value));
    return value;
}

START_TEST(duplicates_are_found_wherever_and_however_written)
{
    static const char *const twice[] = {"{\"a\":1,\"b\":2,\"a\":3}",
                                        "{\"key\":1,\"\\u006bey\":2}",
                                        "{\"a\":{\"b\":1,\"b\":1}}",
                                        "{\"a\":[1,{\"b\":1,\"b\":1}]}",
                                        "{\"\":1,\"\":2}",
                                        "{\"\xC3\xA9\":1,\"\\u00E9\":2}",
                                        "{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}",
                                        "{\"\\/\":1,\"/\":1}"};
    static const char *const once[] = {
        "{}",    "{\"a\":1,\"A\":2}",    "{\"a\":{\"a\":1}}", "[1,1]", "{\"a\":1,\"ab\":1}",
        "\"a\"", "[{\"a\":1},{\"a\":1}]"};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(twice); i++) {
        struct json_value value = parse(twice[i]);
        ck_assert_msg(json_has_duplicates(&value), "%s", twice[i]);
    }
    for (size_t i = 0; i < LB_ARRAY_LENGTH(once); i++) {
        struct json_value value = parse(once[i]);
        ck_assert_msg(!json_has_duplicates(&value), "%s", once[i]);
    }
}
END_TEST

START_TEST(values_are_walked_in_order)
{
    struct json_value object =
        parse(" { \"a\" : [ 1 , -2.5 , \"]}\\\"\" , {} ] , \"b\":null,\"c\":true}");
    static const enum json_kind kinds[] = {JSON_INTEGER, JSON_REAL, JSON_TEXT, JSON_OBJECT};
    struct json_cursor cursor;
    struct json_value value;
    size_t count = 0;

    ck_assert(json_find_member(&object, "a", &value));
    ck_assert_int_eq(value.kind, JSON_ARRAY);
    json_cursor_init(&cursor, &value);
    while (json_next_element(&cursor, &value)) {
        ck_assert_uint_lt(count, LB_ARRAY_LENGTH(kinds));
        ck_assert_int_eq(value.kind, kinds[count++]);
    }
    ck_assert_uint_eq(count, LB_ARRAY_LENGTH(kinds));
    ck_assert(json_find_member(&object, "b", &value));
    ck_assert_int_eq(value.kind, JSON_NULL);
    ck_assert(json_find_member(&object, "c", &value));
    ck_assert(json_bool(&value));
    ck_assert(!json_find_member(&object, "d", &value));
}
END_TEST

START_TEST(integers_keep_every_bit_or_are_refused)
{
    static const struct {
        const char *text;
        bool is_good;
        int64_t expected;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9007199254740993", true, 9007199254740993},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"100000000000000000000000", false, 0},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        struct json_value value = parse(cases[i].text);
        int64_t integer = 0;

        ck_assert_int_eq(value.kind, JSON_INTEGER);
        ck_assert_int_eq(json_integer(&value, &integer), cases[i].is_good);
        ck_assert_int_eq(integer, cases[i].expected);
    }
}
END_TEST

START_TEST(texts_are_unescaped_and_cut_between_characters)
{
    struct json_value text = parse("\"a\\n\\u00e9\\ud83d\\ude00\\\\\"");
    char space[16];

    ck_assert_uint_eq(json_text_copy(&text, space, sizeof(space)), 9);
    ck_assert_str_eq(space, "a\n\xC3\xA9\xF0\x9F\x98\x80\\");
    ck_assert(json_text_equals(&text, space));
    ck_assert(!json_text_equals(&text, "a\n"));
    ck_assert(!json_text_equals(&text, "a\n\xC3\xA9\xF0\x9F\x98\x80\\x"));
    ck_assert_uint_eq(json_text_copy(&text, space, 10), 9);
    ck_assert_uint_eq(json_text_copy(&text, space, 8), SIZE_MAX);
    ck_assert_str_eq(space, "a\n\xC3\xA9");
    ck_assert_uint_eq(json_text_copy(&text, space, 1), SIZE_MAX);
    ck_assert_str_eq(space, "");
}
END_TEST

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

static void write_sample(struct json_out *out)
{
    json_out_object_begin(out);
    json_out_member_int(out, "min", INT64_MIN);
    json_out_member_bool(out, "yes", true);
    json_out_name(out, "list");
    json_out_array_begin(out);
    json_out_null(out);
    json_out_object_begin(out);
    json_out_object_end(out);
    json_out_bool(out, false);
    json_out_array_end(out);
    json_out_member_text(out, "text", "\"\\/\b\f\n\r\t\x01\x7F \xC3\xA9\xFF\xC3");
    json_out_object_end(out);
    json_out_newline(out);
}

static const char sample[] =
    "{\"min\":-9223372036854775808,\"yes\":true,\"list\":[null,{},false],"
    "\"text\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f \xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\"}\n";

START_TEST(the_writer_is_compact_and_escapes)
{
    struct buf buf;
    struct json_out out;

    buf_init(&buf, 1000);
    json_out_init(&out, &buf);
    write_sample(&out);
    ck_assert_int_eq(json_out_error(&out), 0);
    ck_assert_uint_eq(buf_length(&buf), sizeof(sample) - 1);
    ck_assert_mem_eq(buf_bytes(&buf), sample, sizeof(sample) - 1);
    buf_clear(&buf);
}
END_TEST

START_TEST(the_writer_keeps_its_first_error)
{
    struct buf buf;
    struct json_out out;

    for (size_t cap = 0; cap < sizeof(sample) - 1; cap++) {
        buf_init(&buf, cap);
        json_out_init(&out, &buf);
        write_sample(&out);
        ck_assert_int_eq(json_out_error(&out), -ENOBUFS);
        buf_clear(&buf);
    }
    buf_init(&buf, 1000);
    json_out_init(&out, &buf);
    alloc_fail_after(0);
    write_sample(&out);
    (void)alloc_restore();
    ck_assert_int_eq(json_out_error(&out), -ENOMEM);
    ck_assert_uint_eq(buf_length(&buf), 0);
    buf_clear(&buf);
}
END_TEST

Suite *json_suite(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");

    tcase_add_test(tcase, good_json_is_taken);
    tcase_add_test(tcase, bad_json_is_refused);
    tcase_add_test(tcase, every_prefix_of_an_object_is_refused);
    tcase_add_test(tcase, members_are_counted_in_all);
    tcase_add_test(tcase, duplicates_are_found_wherever_and_however_written);
    tcase_add_test(tcase, values_are_walked_in_order);
    tcase_add_test(tcase, integers_keep_every_bit_or_are_refused);
    tcase_add_test(tcase, texts_are_unescaped_and_cut_between_characters);
    tcase_add_test(tcase, utf8_is_strict);
    tcase_add_test(tcase, the_writer_is_compact_and_escapes);
    tcase_add_test(tcase, the_writer_keeps_its_first_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
