// Good requests: read, written, and both in turn.
#include "proto/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

static struct request request;
static struct reply refusal;

static void assert_parsed(const char *line)
{
    ck_assert_msg(request_parse(line, strlen(line), &request, &refusal) == 0, "%s: %s", line,
                  refusal.message ? refusal.message : "");
}

START_TEST(what_is_not_given_has_its_default)
{
    assert_parsed("{\"id\":1,\"op\":\"ping\"}");
    ck_assert_int_eq(request.op, OP_PING);
    ck_assert_int_eq(request.id.kind, REQUEST_ID_NUMBER);
    ck_assert_int_eq(request.id.number, 1);
    ck_assert_uint_eq(request.given, 0);
    ck_assert(request.renew);
    ck_assert_int_eq(request.bind, BIND_CONNECTION);
    ck_assert_int_eq(request.on_lost, ON_LOST_EVENT);
    ck_assert_int_eq(request.wait_ms, 0);
    ck_assert_int_eq(request.limit, 100);
    ck_assert_int_eq(request.version, 1);
    ck_assert_int_eq(request.ttl_ms, LB_NONE);
    ck_assert_int_eq(request.max_hold_ms, LB_NONE);
    ck_assert_int_eq(request.fence, LB_NONE);
    ck_assert_str_eq(request.key, "");
    ck_assert_str_eq(request.owner, "");
    ck_assert_str_eq(request.after, "");
}
END_TEST

START_TEST(every_field_of_acquire_is_read)
{
    assert_parsed(
        "{\"id\":\"a-1\",\"op\":\"acquire\",\"key\":\"jobs/\\u00e9\",\"owner\":\"worker 1\","
        "\"ttl_ms\":1000,\"wait_ms\":-1,\"renew\":false,\"max_hold_ms\":1,"
        "\"note\":\"two\\nlines\",\"on_lost\":\"kill\"}");
    ck_assert_int_eq(request.id.kind, REQUEST_ID_TEXT);
    ck_assert_str_eq(request.id.text, "a-1");
    ck_assert_int_eq(request.op, OP_ACQUIRE);
    ck_assert_str_eq(request.key, "jobs/\xC3\xA9");
    ck_assert_str_eq(request.owner, "worker 1");
    ck_assert_int_eq(request.ttl_ms, 1000);
    ck_assert_int_eq(request.wait_ms, -1);
    ck_assert(!request.renew);
    ck_assert_int_eq(request.max_hold_ms, 1);
    ck_assert_str_eq(request.note, "two\nlines");
    ck_assert_int_eq(request.on_lost, ON_LOST_KILL);
    ck_assert_uint_eq(request.given, REQUEST_F_KEY | REQUEST_F_OWNER | REQUEST_F_TTL_MS |
                                         REQUEST_F_WAIT_MS | REQUEST_F_RENEW |
                                         REQUEST_F_MAX_HOLD_MS | REQUEST_F_NOTE |
                                         REQUEST_F_ON_LOST);
}
END_TEST

START_TEST(every_other_operation_is_read)
{
    assert_parsed("{\"op\":\"hello\",\"id\":0,\"client\":\"nightly\",\"version\":7,"
                  "\"bind\":\"process\"}");
    ck_assert_int_eq(request.op, OP_HELLO);
    ck_assert_str_eq(request.client, "nightly");
    ck_assert_int_eq(request.version, 7);
    ck_assert_int_eq(request.bind, BIND_PROCESS);
    assert_parsed("{\"id\":1,\"op\":\"release\",\"key\":\"k\",\"owner\":\"\",\"fence\":0,"
                  "\"status\":\"ok\"}");
    ck_assert_int_eq(request.op, OP_RELEASE);
    ck_assert_int_eq(request.fence, 0);
    ck_assert_str_eq(request.status, "ok");
    assert_parsed("{\"id\":1,\"op\":\"extend\",\"key\":\"k\",\"fence\":9007199254740991,"
                  "\"ttl_ms\":30000,\"max_hold_ms\":5}");
    ck_assert_int_eq(request.op, OP_EXTEND);
    ck_assert_int_eq(request.fence, LB_INTEGER_MAX);
    assert_parsed("{\"id\":1,\"op\":\"check\",\"key\":\"k\"}");
    ck_assert_int_eq(request.op, OP_CHECK);
    assert_parsed("{\"id\":1,\"op\":\"query\",\"key\":\"k\"}");
    ck_assert_int_eq(request.op, OP_QUERY);
    assert_parsed("{\"id\":1,\"op\":\"cancel\",\"target\":\"x\"}");
    ck_assert_int_eq(request.op, OP_CANCEL);
    ck_assert_int_eq(request.target.kind, REQUEST_ID_TEXT);
    ck_assert_str_eq(request.target.text, "x");
    assert_parsed("{\"id\":1,\"op\":\"cancel\",\"target\":9007199254740991}");
    ck_assert_int_eq(request.target.number, LB_INTEGER_MAX);
    assert_parsed("{\"id\":1,\"op\":\"break\",\"key\":\"k\",\"reason\":\"stuck\"}");
    ck_assert_int_eq(request.op, OP_BREAK);
    ck_assert_str_eq(request.reason, "stuck");
    assert_parsed("{\"id\":1,\"op\":\"list\",\"prefix\":\"\",\"after\":\"k\",\"limit\":1000}");
    ck_assert_int_eq(request.op, OP_LIST);
    ck_assert_str_eq(request.after, "k");
    ck_assert_int_eq(request.limit, 1000);
    assert_parsed("{\"id\":1,\"op\":\"stats\"}");
    ck_assert_int_eq(request.op, OP_STATS);
}
END_TEST

START_TEST(escapes_and_blanks_do_not_matter)
{
    assert_parsed(" {\t\"\\u0069d\" : 1 ,\r \"op\":\"\\u0070ing\" } ");
    ck_assert_int_eq(request.op, OP_PING);
    ck_assert_int_eq(request.id.number, 1);
}
END_TEST

START_TEST(the_longest_of_everything_passes)
{
    char line[2000];
    char key[LB_KEY_BYTES_MAX + 1] = "";
    char id[LB_ID_BYTES_MAX + 1] = "";

    memset(key, 'k', LB_KEY_BYTES_MAX);
    memset(id, 'i', LB_ID_BYTES_MAX);
    (void)snprintf(line, sizeof(line), "{\"id\":\"%s\",\"op\":\"query\",\"key\":\"%s\"}", id, key);
    assert_parsed(line);
    ck_assert_str_eq(request.key, key);
    ck_assert_str_eq(request.id.text, id);
}
END_TEST

static void assert_round_trip(const struct request *written)
{
    struct buf buf;
    size_t length;

    buf_init(&buf, LB_REQUEST_LINE_BYTES_MAX + 1);
    ck_assert_int_eq(request_write(&buf, written), 0);
    length = buf_length(&buf);
    ck_assert_int_eq(buf_bytes(&buf)[length - 1], '\n');
    ck_assert_msg(request_parse(buf_bytes(&buf), length - 1, &request, &refusal) == 0, "%.*s",
                  (int)length, buf_bytes(&buf));
    ck_assert_int_eq(request.op, written->op);
    ck_assert_uint_eq(request.given, written->given);
    ck_assert_int_eq(request.id.kind, written->id.kind);
    ck_assert_int_eq(request.id.number, written->id.number);
    ck_assert_str_eq(request.id.text, written->id.text);
    ck_assert_int_eq(request.target.number, written->target.number);
    ck_assert_str_eq(request.key, written->key);
    ck_assert_str_eq(request.owner, written->owner);
    ck_assert_str_eq(request.note, written->note);
    ck_assert_str_eq(request.status, written->status);
    ck_assert_str_eq(request.reason, written->reason);
    ck_assert_str_eq(request.client, written->client);
    ck_assert_str_eq(request.prefix, written->prefix);
    ck_assert_str_eq(request.after, written->after);
    ck_assert_int_eq(request.ttl_ms, written->ttl_ms);
    ck_assert_int_eq(request.wait_ms, written->wait_ms);
    ck_assert_int_eq(request.max_hold_ms, written->max_hold_ms);
    ck_assert_int_eq(request.fence, written->fence);
    ck_assert_int_eq(request.limit, written->limit);
    ck_assert_int_eq(request.version, written->version);
    ck_assert_int_eq(request.renew, written->renew);
    ck_assert_int_eq(request.bind, written->bind);
    ck_assert_int_eq(request.on_lost, written->on_lost);
    buf_clear(&buf);
}

static const struct {
    enum op op;
    uint32_t allowed;
} ops[] = {
#define X(symbol, name, allowed, required) {OP_##symbol, allowed},
#include "proto/ops.def"
#undef X
};

START_TEST(every_operation_comes_back_as_it_was_written)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(ops); i++) {
        struct request written;
        uint32_t bits = ops[i].allowed;

        request_init(&written);
        written.op = ops[i].op;
        written.id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = LB_INTEGER_MAX};
        written.given = bits;
#define GIVE_TEXT(bit, member, value)                                                              \
    if (bits & (bit))                                                                              \
    (void)strcpy(written.member, value)
#define GIVE(bit, member, value)                                                                   \
    if (bits & (bit))                                                                              \
    written.member = value
        GIVE_TEXT(REQUEST_F_KEY, key, "a \"key\" \\ / \xC3\xA9");
        GIVE_TEXT(REQUEST_F_OWNER, owner, "owner\x1F\x7F");
        GIVE_TEXT(REQUEST_F_NOTE, note, "note\n\t");
        GIVE_TEXT(REQUEST_F_STATUS, status, "");
        GIVE_TEXT(REQUEST_F_REASON, reason, "reason");
        GIVE_TEXT(REQUEST_F_CLIENT, client, "client");
        GIVE_TEXT(REQUEST_F_PREFIX, prefix, "prefix");
        GIVE_TEXT(REQUEST_F_AFTER, after, "after");
        GIVE(REQUEST_F_TTL_MS, ttl_ms, 1234);
        GIVE(REQUEST_F_WAIT_MS, wait_ms, -1);
        GIVE(REQUEST_F_MAX_HOLD_MS, max_hold_ms, LB_INTEGER_MAX);
        GIVE(REQUEST_F_FENCE, fence, LB_INTEGER_MAX);
        GIVE(REQUEST_F_LIMIT, limit, 7);
        GIVE(REQUEST_F_VERSION, version, -3);
        GIVE(REQUEST_F_RENEW, renew, false);
        GIVE(REQUEST_F_BIND, bind, BIND_PROCESS);
        GIVE(REQUEST_F_ON_LOST, on_lost, ON_LOST_TERM);
        GIVE(REQUEST_F_TARGET, target,
             ((struct request_id){.kind = REQUEST_ID_NUMBER, .number = 5}));
        assert_round_trip(&written);
    }
}
END_TEST

START_TEST(only_what_is_given_is_written)
{
    static const char expected[] = "{\"id\":\"x\",\"op\":\"acquire\",\"key\":\"k\"}\n";
    struct request written;
    struct buf buf;

    request_init(&written);
    written.id = (struct request_id){.kind = REQUEST_ID_TEXT, .text = "x"};
    written.op = OP_ACQUIRE;
    written.given = REQUEST_F_KEY;
    (void)strcpy(written.key, "k");
    (void)strcpy(written.note, "not given");
    buf_init(&buf, 100);
    ck_assert_int_eq(request_write(&buf, &written), 0);
    ck_assert_uint_eq(buf_length(&buf), sizeof(expected) - 1);
    ck_assert_mem_eq(buf_bytes(&buf), expected, sizeof(expected) - 1);
    buf_clear(&buf);
}
END_TEST

START_TEST(a_request_that_does_not_fit_leaves_the_buffer_alone)
{
    struct request written;
    struct buf buf;

    request_init(&written);
    written.op = OP_PING;
    buf_init(&buf, 20);
    ck_assert_int_eq(buf_append(&buf, "before", 6), 0);
    ck_assert_int_eq(request_write(&buf, &written), -ENOBUFS);
    ck_assert_uint_eq(buf_length(&buf), 6);
    buf_clear(&buf);
    buf_init(&buf, 1000);
    alloc_fail_after(0);
    ck_assert_int_eq(request_write(&buf, &written), -ENOMEM);
    (void)alloc_restore();
    ck_assert_uint_eq(buf_length(&buf), 0);
    buf_clear(&buf);
}
END_TEST

// Nothing in jansson or in here then can fail for want of memory, at whatever place.
START_TEST(parsing_takes_no_memory)
{
    static const char good[] =
        "{\"id\":1,\"op\":\"acquire\",\"key\":\"k\",\"note\":\"a note longer "
        "than any small buffer of a parser would be\"}";
    static const char bad[] = "{\"id\":1,\"op\":\"acquire\",\"a field that is not known\":1}";
    int r_good;
    int r_bad;

    alloc_fail_after(0);
    r_good = request_parse(good, sizeof(good) - 1, &request, &refusal);
    r_bad = request_parse(bad, sizeof(bad) - 1, &request, &refusal);
    ck_assert_int_eq(alloc_restore(), 0);
    ck_assert_int_eq(r_good, 0);
    ck_assert_int_eq(r_bad, REQUEST_E_REFUSED);
}
END_TEST

START_TEST(operations_have_names)
{
    ck_assert_ptr_null(op_name(OP_NONE));
    ck_assert_str_eq(op_name(OP_HELLO), "hello");
    ck_assert_str_eq(op_name(OP_STATS), "stats");
}
END_TEST

Suite *request_suite(void)
{
    Suite *suite = suite_create("request");
    TCase *tcase = tcase_create("request");

    tcase_add_test(tcase, what_is_not_given_has_its_default);
    tcase_add_test(tcase, every_field_of_acquire_is_read);
    tcase_add_test(tcase, every_other_operation_is_read);
    tcase_add_test(tcase, escapes_and_blanks_do_not_matter);
    tcase_add_test(tcase, the_longest_of_everything_passes);
    tcase_add_test(tcase, every_operation_comes_back_as_it_was_written);
    tcase_add_test(tcase, only_what_is_given_is_written);
    tcase_add_test(tcase, a_request_that_does_not_fit_leaves_the_buffer_alone);
    tcase_add_test(tcase, parsing_takes_no_memory);
    tcase_add_test(tcase, operations_have_names);
    suite_add_tcase(suite, tcase);
    return suite;
}
