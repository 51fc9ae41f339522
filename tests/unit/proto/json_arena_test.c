// The memory that requests are read in: enough for every line, and what becomes of a line when
// there is too little.
#include "proto/json_arena.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "proto/request.h"
#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

static struct request request;
static struct reply refusal;

// The longest line that has `item` repeated between `head` and `tail`.
static size_t fill_line(char *line, const char *head, const char *item, const char *tail)
{
    size_t length = strlen(head);

    memcpy(line, head, length);
    while (length + strlen(item) + strlen(tail) <= LB_REQUEST_LINE_BYTES_MAX) {
        memcpy(line + length, item, strlen(item));
        length += strlen(item);
    }
    memcpy(line + length, tail, strlen(tail));
    return length + strlen(tail);
}

START_TEST(every_line_fits)
{
    static const char *const cases[][3] = {
        {"[", "1,", "1]"},
        {"[", "1.5,", "1]"},
        {"[", "\"\",", "1]"},
        {"[", "\"abcdefghijklmnop\",", "1]"},
        {"[", "[],", "1]"},
        {"[", "{},", "1]"},
        {"[", "[[]],", "1]"},
        {"[", "[{}],", "1]"},
        {"[", "true,", "1]"},
        {"\"", "a", "\""},
        {"\"", "\\u0001", "\""},
        {"{\"\":1,\"", "a", "\":1}"},
        {"[[],[],[],[],[],[],[],[],\"", "a", "\"]"},
    };
    char head[LB_REQUEST_LINE_BYTES_MAX];
    char line[LB_REQUEST_LINE_BYTES_MAX];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        char tail[16];

        (void)snprintf(head, sizeof(head), "{\"id\":7,\"op\":\"ping\",\"x\":%s", cases[i][0]);
        (void)snprintf(tail, sizeof(tail), "%s}", cases[i][2]);

        size_t length = fill_line(line, head, cases[i][1], tail);

        ck_assert_int_eq(request_parse(line, length, &request, &refusal), REQUEST_E_REFUSED);
        ck_assert_msg(refusal.error == ERROR_BAD_FIELD, "%s: %d", cases[i][1], refusal.error);
        ck_assert_str_eq(refusal.field, "x");
    }
}
END_TEST

START_TEST(with_too_little_a_line_is_refused_as_a_whole)
{
    static const char key[] = "a key longer than the first few sizes of the lexer's buffer, "
                              "so that it has to grow more than once while it reads the key";
    char line[400];
    size_t length;
    size_t bytes = 0;
    int r;

    length = (size_t)snprintf(
        line, sizeof(line),
        "{\"id\":7,\"op\":\"acquire\",\"key\":\"%s\",\"note\":\"abcdefghijklmn\"}", key);
    do {
        ck_assert_int_eq(json_arena_init(bytes), 0);
        r = request_parse(line, length, &request, &refusal);
        if (r != 0) {
            ck_assert_int_eq(refusal.error, ERROR_QUOTA);
            ck_assert_str_eq(refusal.limit, "memory");
            ck_assert_int_eq(refusal.id.kind, REQUEST_ID_NONE);
        }
        bytes += 16;
    } while (r != 0);
    ck_assert_uint_gt(bytes, 500);
    ck_assert_str_eq(request.key, key);
    ck_assert_str_eq(request.note, "abcdefghijklmn");
    ck_assert_int_eq(request_parser_init(), 0);
}
END_TEST

START_TEST(a_line_leaves_nothing_behind)
{
    static const char line[] = "{\"id\":7,\"op\":\"ping\",\"x\":[[1,2],\"some text\"]}";

    for (int i = 0; i < 20000; i++) {
        ck_assert_int_eq(request_parse(line, sizeof(line) - 1, &request, &refusal),
                         REQUEST_E_REFUSED);
        ck_assert_int_eq(refusal.error, ERROR_BAD_FIELD);
    }
}
END_TEST

START_TEST(trees_of_others_live_on)
{
    static const char line[] = "{\"id\":7,\"op\":\"ping\"}";
    json_t *other = json_pack("{s:s}", "a", "text of a program that uses jansson, too");

    ck_assert_int_eq(request_parse(line, sizeof(line) - 1, &request, &refusal), 0);
    ck_assert_str_eq(json_string_value(json_object_get(other, "a")),
                     "text of a program that uses jansson, too");
    json_decref(other);
}
END_TEST

START_TEST(without_memory_the_arena_stays_as_it_was)
{
    static const char line[] = "{\"id\":7,\"op\":\"ping\"}";
    int r;

    alloc_fail_after(0);
    r = request_parser_init();
    (void)alloc_restore();
    ck_assert_int_eq(r, -ENOMEM);
    ck_assert_int_eq(request_parse(line, sizeof(line) - 1, &request, &refusal), 0);
}
END_TEST

Suite *json_arena_suite(void)
{
    Suite *suite = suite_create("json_arena");
    TCase *tcase = tcase_create("json_arena");

    tcase_add_unchecked_fixture(tcase, parser_init, NULL);
    tcase_add_test(tcase, every_line_fits);
    tcase_add_test(tcase, with_too_little_a_line_is_refused_as_a_whole);
    tcase_add_test(tcase, a_line_leaves_nothing_behind);
    tcase_add_test(tcase, trees_of_others_live_on);
    tcase_add_test(tcase, without_memory_the_arena_stays_as_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}
