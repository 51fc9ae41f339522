// Lines that are no request: which error, which field, and which id the refusal carries.
#include <stdlib.h>
#include <string.h>

#include "proto/reply.h"
#include "proto/request.h"
#include "tests/unit/proto/suites.h"

static struct request request;
static struct reply refusal;

static void refuse_bytes(const char *line, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);

    // A block of its own size shows a read past the end.
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, line, length);
    ck_assert_msg(request_parse(copy, length, &request, &refusal) == REQUEST_E_REFUSED,
                  "was taken: %s", line);
    free(copy);
}

// `id` as it would be written: "null", "7" or "\"x\"".
static void assert_refused(const char *line, enum error_code error, const char *field,
                           const char *id)
{
    char text[LB_ID_BYTES_MAX + 3] = "null";

    refuse_bytes(line, strlen(line));
    ck_assert_msg(refusal.error == error, "%s: %s", line, error_name(refusal.error));
    if (field) {
        ck_assert_msg(refusal.field != NULL, "%s", line);
        ck_assert_str_eq(refusal.field, field);
        ck_assert_ptr_nonnull(refusal.message);
    } else {
        ck_assert_ptr_null(refusal.field);
    }
    if (refusal.id.kind == REQUEST_ID_NUMBER)
        (void)snprintf(text, sizeof(text), "%lld", (long long)refusal.id.number);
    else if (refusal.id.kind == REQUEST_ID_TEXT)
        (void)snprintf(text, sizeof(text), "\"%s\"", refusal.id.text);
    ck_assert_msg(strcmp(text, id) == 0, "%s: id %s", line, text);
}

static void assert_malformed(const char *line)
{
    assert_refused(line, ERROR_MALFORMED, NULL, "null");
}

static void assert_bad_field(const char *line, const char *field)
{
    assert_refused(line, ERROR_BAD_FIELD, field, "7");
}

START_TEST(what_is_no_object_is_malformed)
{
    assert_malformed("");
    assert_malformed(" ");
    assert_malformed("hello");
    assert_malformed("[]");
    assert_malformed("[{\"id\":7,\"op\":\"ping\"}]");
    assert_malformed("\"ping\"");
    assert_malformed("7");
    assert_malformed("null");
    assert_malformed("{\"id\":7,\"op\":\"ping\"");
    assert_malformed("{\"id\":7,\"op\":\"ping\"}}");
    assert_malformed("{\"id\":7,\"op\":\"ping\"} {}");
    assert_malformed("{\"id\":7,\"op\":\"ping\",}");
}
END_TEST

START_TEST(numbers_that_nothing_holds_are_malformed)
{
    assert_malformed("{\"id\":9223372036854775808,\"op\":\"ping\"}");
    assert_malformed("{\"id\":7,\"op\":\"cancel\",\"target\":-9223372036854775809}");
    assert_malformed("{\"id\":7,\"op\":\"acquire\",\"key\":\"k\",\"wait_ms\":1e400}");
}
END_TEST

START_TEST(a_line_over_the_limit_is_too_long)
{
    char line[LB_REQUEST_LINE_BYTES_MAX + 1];
    static const char ping[] = "{\"id\":7,\"op\":\"ping\"}";

    memset(line, ' ', sizeof(line));
    memcpy(line, ping, sizeof(ping) - 1);
    refuse_bytes(line, sizeof(line));
    ck_assert_int_eq(refusal.error, ERROR_TOO_LONG);
    ck_assert_int_eq(refusal.id.kind, REQUEST_ID_NONE);
    ck_assert_int_eq(request_parse(line, sizeof(line) - 1, &request, &refusal), 0);
}
END_TEST

START_TEST(duplicates_are_malformed)
{
    assert_malformed("{\"id\":7,\"op\":\"ping\",\"id\":7}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"a\",\"key\":\"b\"}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"a\",\"\\u006bey\":\"b\"}");
    assert_malformed("{\"id\":7,\"op\":\"ping\",\"x\":1,\"x\":1}");
    assert_malformed("{\"id\":7,\"op\":\"ping\",\"x\":{\"y\":1,\"y\":1}}");
}
END_TEST

START_TEST(nul_and_bad_utf8_are_malformed)
{
    static const char nul[] = "{\"id\":7,\"op\":\"query\",\"key\":\"a\0b\"}";
    static const char tail[] = "{\"id\":7,\"op\":\"ping\"}\0";

    refuse_bytes(nul, sizeof(nul) - 1);
    ck_assert_int_eq(refusal.error, ERROR_MALFORMED);
    refuse_bytes(tail, sizeof(tail) - 1);
    ck_assert_int_eq(refusal.error, ERROR_MALFORMED);
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"a\\u0000b\"}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"\xFF\"}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"\xED\xA0\x80\"}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"\\ud800\"}");
    assert_malformed("{\"id\":7,\"op\":\"query\",\"key\":\"a\tb\"}");
}
END_TEST

START_TEST(too_deep_and_too_many_are_malformed)
{
    char line[LB_REQUEST_LINE_BYTES_MAX];
    size_t length = 0;

    assert_bad_field("{\"id\":7,\"op\":\"ping\",\"x\":[[[1]]]}", "x");
    assert_malformed("{\"id\":7,\"op\":\"ping\",\"x\":[[[[1]]]]}");
    memset(line, '[', sizeof(line));
    refuse_bytes(line, sizeof(line));
    ck_assert_int_eq(refusal.error, ERROR_MALFORMED);
    length = (size_t)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"ping\"");
    for (int i = 0; i < 14; i++)
        length += (size_t)snprintf(line + length, sizeof(line) - length, ",\"x%d\":1", i);
    (void)snprintf(line + length, sizeof(line) - length, "}");
    assert_bad_field(line, "x0");
    (void)snprintf(line + length, sizeof(line) - length, ",\"y\":1}");
    assert_malformed(line);
}
END_TEST

START_TEST(a_bad_id_is_answered_with_null)
{
    static const char *const ids[] = {
        "null", "true", "1.0", "1e3", "-1", "9007199254740992", "9223372036854775807",
        "\"\"", "[]",   "{}"};
    char line[300];
    char text[LB_ID_BYTES_MAX + 2] = "";

    assert_refused("{\"op\":\"ping\"}", ERROR_BAD_FIELD, "id", "null");
    assert_refused("{}", ERROR_BAD_FIELD, "id", "null");
    for (size_t i = 0; i < LB_ARRAY_LENGTH(ids); i++) {
        (void)snprintf(line, sizeof(line), "{\"id\":%s,\"op\":\"ping\"}", ids[i]);
        assert_refused(line, ERROR_BAD_FIELD, "id", "null");
    }
    memset(text, 'i', LB_ID_BYTES_MAX + 1);
    (void)snprintf(line, sizeof(line), "{\"id\":\"%s\",\"op\":\"ping\"}", text);
    assert_refused(line, ERROR_BAD_FIELD, "id", "null");
}
END_TEST

START_TEST(a_bad_op_keeps_the_id)
{
    assert_bad_field("{\"id\":7}", "op");
    assert_refused("{\"id\":\"x\"}", ERROR_BAD_FIELD, "op", "\"x\"");
    assert_bad_field("{\"id\":7,\"op\":null}", "op");
    assert_bad_field("{\"id\":7,\"op\":1}", "op");
    assert_refused("{\"id\":7,\"op\":\"\"}", ERROR_UNKNOWN_OP, NULL, "7");
    assert_refused("{\"id\":7,\"op\":\"Ping\"}", ERROR_UNKNOWN_OP, NULL, "7");
    assert_refused("{\"op\":\"frobnicate\",\"x\":1,\"id\":\"x\"}", ERROR_UNKNOWN_OP, NULL, "\"x\"");
    ck_assert_int_eq(refusal.op, OP_NONE);
}
END_TEST

START_TEST(unknown_and_misplaced_fields_are_named)
{
    char line[400] = "{\"id\":7,\"op\":\"ping\",\"";
    char name[300];
    char cut[LB_FIELD_BYTES_MAX + 1] = "";

    assert_bad_field("{\"id\":7,\"op\":\"acquire\",\"key\":\"k\",\"ttl\":3000}", "ttl");
    assert_bad_field("{\"id\":7,\"op\":\"acquire\",\"key\":\"k\",\"TTL_MS\":3000}", "TTL_MS");
    assert_bad_field("{\"id\":7,\"op\":\"ping\",\"key\":\"k\"}", "key");
    assert_bad_field("{\"id\":7,\"op\":\"release\",\"key\":\"k\",\"ttl_ms\":3000}", "ttl_ms");
    assert_bad_field("{\"id\":7,\"op\":\"ping\",\"\":1}", "");
    assert_bad_field("{\"id\":7,\"op\":\"ping\",\"\\u00e9\\n\":1}", "\xC3\xA9\n");
    ck_assert_int_eq(refusal.op, OP_PING);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    memset(cut, 'n', LB_FIELD_BYTES_MAX);
    (void)strcat(line, name);
    (void)strcat(line, "\":1}");
    assert_bad_field(line, cut);
    (void)snprintf(line, sizeof(line), "ping has no field \"%s\"", cut);
    ck_assert_str_eq(refusal.message, line);
}
END_TEST

START_TEST(an_unknown_name_is_cut_between_characters)
{
    char line[200];
    char name[LB_FIELD_BYTES_MAX + 1] = "";

    memset(name, 'n', LB_FIELD_BYTES_MAX - 2);
    (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"ping\",\"%s\xC3\xA9\":1}", name);
    refuse_bytes(line, strlen(line));
    ck_assert_uint_eq(strlen(refusal.field), LB_FIELD_BYTES_MAX);
    for (size_t length = LB_FIELD_BYTES_MAX - 2; length < LB_FIELD_BYTES_MAX; length++) {
        name[length] = '\0';
        (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"ping\",\"%s\xE2\x82\xAC\":1}", name);
        assert_bad_field(line, name);
        name[length] = 'n';
    }
}
END_TEST

START_TEST(required_fields_are_named)
{
    static const char *const ops[] = {"acquire", "release", "extend", "check", "query", "break"};
    char line[100];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(ops); i++) {
        (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"%s\"}", ops[i]);
        assert_bad_field(line, "key");
    }
    assert_bad_field("{\"id\":7,\"op\":\"cancel\"}", "target");
}
END_TEST

START_TEST(keys_have_no_control_characters_and_a_size)
{
    char line[1000];
    char key[LB_KEY_BYTES_MAX + 2] = "";

    memset(key, 'k', LB_KEY_BYTES_MAX + 1);
    (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"query\",\"key\":\"%s\"}", key);
    assert_bad_field(line, "key");
    (void)strcpy(key + LB_KEY_BYTES_MAX - 1, "\xC3\xA9");
    (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"query\",\"key\":\"%s\"}", key);
    assert_bad_field(line, "key");
    assert_bad_field("{\"id\":7,\"op\":\"query\",\"key\":\"\"}", "key");
    for (int c = 1; c < 0x20; c++) {
        (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":\"query\",\"key\":\"a\\u%04x\"}", c);
        assert_bad_field(line, "key");
    }
    assert_bad_field("{\"id\":7,\"op\":\"query\",\"key\":\"a\x7F\"}", "key");
    assert_bad_field("{\"id\":7,\"op\":\"query\",\"key\":\"a\\u007f\"}", "key");
    assert_bad_field("{\"id\":7,\"op\":\"list\",\"prefix\":\"\\n\"}", "prefix");
    assert_bad_field("{\"id\":7,\"op\":\"list\",\"after\":\"\\n\"}", "after");
}
END_TEST

START_TEST(texts_have_a_size)
{
    static const struct {
        const char *op;
        const char *field;
        size_t bytes_max;
    } cases[] = {
        {"\"acquire\",\"key\":\"k\"", "owner", LB_OWNER_BYTES_MAX},
        {"\"acquire\",\"key\":\"k\"", "note", LB_NOTE_BYTES_MAX},
        {"\"release\",\"key\":\"k\"", "status", LB_STATUS_BYTES_MAX},
        {"\"break\",\"key\":\"k\"", "reason", LB_REASON_BYTES_MAX},
        {"\"hello\"", "client", LB_CLIENT_BYTES_MAX},
        {"\"list\"", "prefix", LB_KEY_BYTES_MAX},
        {"\"list\"", "after", LB_KEY_BYTES_MAX},
    };
    char line[1000];
    char text[600];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        memset(text, 't', sizeof(text));
        text[cases[i].bytes_max + 1] = '\0';
        (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":%s,\"%s\":\"%s\"}", cases[i].op,
                       cases[i].field, text);
        assert_bad_field(line, cases[i].field);
        (void)snprintf(line, sizeof(line), "%s is longer than %zu bytes", cases[i].field,
                       cases[i].bytes_max);
        ck_assert_str_eq(refusal.message, line);
        text[cases[i].bytes_max] = '\0';
        (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":%s,\"%s\":\"%s\"}", cases[i].op,
                       cases[i].field, text);
        ck_assert_int_eq(request_parse(line, strlen(line), &request, &refusal), 0);
    }
}
END_TEST

// The operation, up to its last member, that a field can be tried with.
static const struct {
    const char *field;
    const char *start;
    const char *bad; // values, divided by blanks
} values[] = {
    {"key", "\"query\"", "null 1 true [] {} 1.5"},
    {"owner", "\"check\",\"key\":\"k\"", "null 1 true [] {}"},
    {"ttl_ms", "\"acquire\",\"key\":\"k\"",
     "null \"3000\" true 1.0 3000.0 3e3 999 0 -1 9007199254740992 9223372036854775807 []"},
    {"wait_ms", "\"acquire\",\"key\":\"k\"", "null \"0\" false 0.0 -2 9007199254740992 1e300"},
    {"renew", "\"acquire\",\"key\":\"k\"", "null 0 1 \"true\" []"},
    {"max_hold_ms", "\"acquire\",\"key\":\"k\"", "null \"1\" true 1.0 0 -1 9007199254740992"},
    {"note", "\"acquire\",\"key\":\"k\"", "null 1 {}"},
    {"on_lost", "\"acquire\",\"key\":\"k\"", "null 1 \"\" \"Event\" \"stop\""},
    {"fence", "\"release\",\"key\":\"k\"", "null \"1\" 1.0 -1 9007199254740992"},
    {"status", "\"release\",\"key\":\"k\"", "null 1"},
    {"target", "\"cancel\"", "null 1.0 -1 \"\" true [] 9007199254740992"},
    {"reason", "\"break\",\"key\":\"k\"", "null 1"},
    {"prefix", "\"list\"", "null 1"},
    {"after", "\"list\"", "null 1"},
    {"limit", "\"list\"", "null \"1\" 1.0 0 -1 1001"},
    {"client", "\"hello\"", "null 1"},
    {"version", "\"hello\"", "null \"1\" 1.0 9223372036854775807"},
    {"bind", "\"hello\"", "null 1 \"\" \"thread\""},
};

// What is said of a value, read alone by whoever sent it.
static const struct {
    const char *start; // as above
    const char *field;
    const char *value; // NULL: none
    const char *message;
} sentences[] = {
    {"\"acquire\",\"key\":\"k\"", "ttl_ms", "50", "ttl_ms must be 1000 or more"},
    {"\"acquire\",\"key\":\"k\"", "ttl_ms", "\"5s\"", "ttl_ms must be an integer"},
    {"\"acquire\",\"key\":\"k\"", "ttl_ms", "5e3",
     "ttl_ms must be an integer, written without fraction and exponent"},
    {"\"acquire\",\"key\":\"k\"", "ttl_ms", "9007199254740992",
     "ttl_ms must be at most 9007199254740991"},
    {"\"acquire\",\"key\":\"k\"", "wait_ms", "-2", "wait_ms must be -1 or more"},
    {"\"acquire\",\"key\":\"k\"", "max_hold_ms", "0", "max_hold_ms must be 1 or more"},
    {"\"acquire\",\"key\":\"k\"", "renew", "1", "renew must be true or false"},
    {"\"acquire\",\"key\":\"k\"", "note", "1", "note must be a string"},
    {"\"acquire\",\"key\":\"k\"", "on_lost", "\"stop\"",
     "on_lost must be \"event\", \"term\" or \"kill\""},
    {"\"hello\"", "bind", "null", "bind must be \"connection\" or \"process\""},
    {"\"hello\"", "version", "-9007199254740992", "version must be -9007199254740991 or more"},
    {"\"list\"", "limit", "0", "limit must be 1 to 1000"},
    {"\"list\"", "limit", "1001", "limit must be 1 to 1000"},
    {"\"list\"", "ttl", "1", "list has no field \"ttl\""},
    {"\"cancel\"", "target", "-1", "target must be 0 or more"},
    {"\"cancel\"", "target", "\"\"", "target must not be empty"},
    {"\"cancel\"", "target", "true", "target must be an integer or a string"},
    {"\"query\"", "key", "\"\"", "key must not be empty"},
    {"\"query\"", "key", "\"a\\n\"", "key has a control character in it"},
    {"\"query\"", "key", NULL, "key is missing"},
};

START_TEST(the_sentence_says_what_is_wanted)
{
    char line[400];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(sentences); i++) {
        const char *value = sentences[i].value;

        if (value)
            (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":%s,\"%s\":%s}", sentences[i].start,
                           sentences[i].field, value);
        else
            (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":%s}", sentences[i].start);
        assert_bad_field(line, sentences[i].field);
        ck_assert_str_eq(refusal.message, sentences[i].message);
    }
    assert_refused("{\"op\":\"ping\"}", ERROR_BAD_FIELD, "id", "null");
    ck_assert_str_eq(refusal.message, "id is missing");
    assert_refused("{\"id\":1.5,\"op\":\"ping\"}", ERROR_BAD_FIELD, "id", "null");
    ck_assert_str_eq(refusal.message,
                     "id must be an integer, written without fraction and exponent");
    assert_bad_field("{\"id\":7}", "op");
    ck_assert_str_eq(refusal.message, "op is missing");
}
END_TEST

START_TEST(wrong_types_and_ranges_are_named)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(values); i++) {
        char list[200];
        char line[400];
        char *rest = list;
        char *bad;

        (void)snprintf(list, sizeof(list), "%s", values[i].bad);
        while ((bad = strsep(&rest, " "))) {
            (void)snprintf(line, sizeof(line), "{\"id\":7,\"op\":%s,\"%s\":%s}", values[i].start,
                           values[i].field, bad);
            assert_bad_field(line, values[i].field);
        }
    }
}
END_TEST

Suite *refusal_suite(void)
{
    Suite *suite = suite_create("refusal");
    TCase *tcase = tcase_create("refusal");

    tcase_add_test(tcase, what_is_no_object_is_malformed);
    tcase_add_test(tcase, numbers_that_nothing_holds_are_malformed);
    tcase_add_test(tcase, a_line_over_the_limit_is_too_long);
    tcase_add_test(tcase, duplicates_are_malformed);
    tcase_add_test(tcase, nul_and_bad_utf8_are_malformed);
    tcase_add_test(tcase, too_deep_and_too_many_are_malformed);
    tcase_add_test(tcase, a_bad_id_is_answered_with_null);
    tcase_add_test(tcase, a_bad_op_keeps_the_id);
    tcase_add_test(tcase, unknown_and_misplaced_fields_are_named);
    tcase_add_test(tcase, an_unknown_name_is_cut_between_characters);
    tcase_add_test(tcase, required_fields_are_named);
    tcase_add_test(tcase, keys_have_no_control_characters_and_a_size);
    tcase_add_test(tcase, texts_have_a_size);
    tcase_add_test(tcase, the_sentence_says_what_is_wanted);
    tcase_add_test(tcase, wrong_types_and_ranges_are_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
