// Lines from a broker: this one's, and those of newer ones.
#include "proto/incoming.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/reply.h"
#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

void *__real_malloc(size_t size);

static struct incoming incoming;

static int parse(const char *line)
{
    size_t length = strlen(line);
    char *copy = malloc(length + 1);
    int r;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, line, length);
    r = reply_parse(copy, length, &incoming);
    free(copy);
    return r;
}

static void assert_kind(const char *line, enum incoming_kind kind)
{
    ck_assert_msg(parse(line) == 0, "%s", line);
    ck_assert_int_eq(incoming.kind, kind);
}

START_TEST(a_grant)
{
    assert_kind("{\"id\":7,\"ok\":true,\"key\":\"k\",\"fence\":1,\"ttl_ms\":2,\"valid_ms\":3,"
                "\"deadline_ms\":4,\"waited_ms\":5,\"new\":{\"x\":[1]}}",
                INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.error, ERROR_NONE);
    ck_assert_ptr_null(incoming.error);
    ck_assert_int_eq(incoming.reply.id.kind, REQUEST_ID_NUMBER);
    ck_assert_int_eq(incoming.reply.id.number, 7);
    ck_assert_str_eq(incoming.reply.key, "k");
    ck_assert_int_eq(incoming.reply.fence, 1);
    ck_assert_int_eq(incoming.reply.ttl_ms, 2);
    ck_assert_int_eq(incoming.reply.valid_ms, 3);
    ck_assert_int_eq(incoming.reply.deadline_ms, 4);
    ck_assert_int_eq(incoming.reply.waited_ms, 5);
    ck_assert_int_eq(incoming.reply.may_block_ms, LB_NONE);
    ck_assert_ptr_null(incoming.reply.holder);
    incoming_clear(&incoming);
    incoming_clear(&incoming);
}
END_TEST

START_TEST(known_and_unknown_errors)
{
    assert_kind(
        "{\"id\":\"x\",\"ok\":false,\"error\":\"busy\",\"message\":\"m\",\"holder\":{"
        "\"kind\":\"local\",\"host\":\"h\",\"pid\":1,\"uid\":2,\"client\":\"c\",\"note\":\"n\","
        "\"fence\":3,\"held_ms\":4,\"ttl_left_ms\":5}}",
        INCOMING_REPLY);
    ck_assert_str_eq(incoming.reply.id.text, "x");
    ck_assert_int_eq(incoming.reply.error, ERROR_BUSY);
    ck_assert_str_eq(incoming.error, "busy");
    ck_assert_str_eq(incoming.reply.message, "m");
    ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_LOCAL);
    ck_assert_str_eq(incoming.reply.holder->host, "h");
    ck_assert_str_eq(incoming.reply.holder->client, "c");
    ck_assert_str_eq(incoming.reply.holder->note, "n");
    ck_assert_int_eq(incoming.reply.holder->pid, 1);
    ck_assert_int_eq(incoming.reply.holder->uid, 2);
    ck_assert_int_eq(incoming.reply.holder->fence, 3);
    ck_assert_int_eq(incoming.reply.holder->held_ms, 4);
    ck_assert_int_eq(incoming.reply.holder->ttl_left_ms, 5);
    ck_assert(!incoming.reply.holder->without_expiry);
    incoming_clear(&incoming);
    assert_kind("{\"id\":null,\"ok\":false,\"error\":\"brand_new\"}", INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.id.kind, REQUEST_ID_NONE);
    ck_assert_int_eq(incoming.reply.error, ERROR_OTHER);
    ck_assert_str_eq(incoming.error, "brand_new");
    incoming_clear(&incoming);
}
END_TEST

START_TEST(holders_of_every_kind)
{
    assert_kind("{\"id\":1,\"ok\":true,\"held\":false,\"holder\":null,\"waiters\":0}",
                INCOMING_REPLY);
    ck_assert(!incoming.reply.held);
    ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_NONE);
    ck_assert_int_eq(incoming.reply.waiters, 0);
    incoming_clear(&incoming);
    assert_kind("{\"id\":1,\"ok\":true,\"broken\":true,\"holder\":{\"kind\":\"foreign\","
                "\"ttl_left_ms\":null}}",
                INCOMING_REPLY);
    ck_assert(incoming.reply.held);
    ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_FOREIGN);
    ck_assert(incoming.reply.holder->without_expiry);
    ck_assert_int_eq(incoming.reply.holder->ttl_left_ms, LB_NONE);
    incoming_clear(&incoming);
    assert_kind("{\"id\":1,\"ok\":true,\"holder\":{\"kind\":\"broker\"}}", INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_BROKER);
    incoming_clear(&incoming);
    assert_kind("{\"id\":1,\"ok\":true,\"holder\":{\"kind\":\"martian\"}}", INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_FOREIGN);
    incoming_clear(&incoming);
}
END_TEST

START_TEST(notices_and_unknown_events)
{
    assert_kind("{\"event\":\"lost\",\"key\":\"k\",\"owner\":\"o\",\"fence\":1,\"deadline_ms\":3,"
                "\"reason\":\"stolen\"}",
                INCOMING_NOTICE);
    ck_assert_int_eq(incoming.notice.kind, NOTICE_LOST);
    ck_assert_str_eq(incoming.event, "lost");
    ck_assert_str_eq(incoming.notice.key, "k");
    ck_assert_str_eq(incoming.notice.owner, "o");
    ck_assert_int_eq(incoming.notice.fence, 1);
    ck_assert_int_eq(incoming.notice.valid_ms, LB_NONE);
    ck_assert_int_eq(incoming.notice.deadline_ms, 3);
    ck_assert_str_eq(incoming.notice.reason, "stolen");
    incoming_clear(&incoming);
    assert_kind("{\"event\":\"suspect\",\"key\":\"k\",\"fence\":1,\"valid_ms\":2}",
                INCOMING_NOTICE);
    ck_assert_int_eq(incoming.notice.kind, NOTICE_SUSPECT);
    ck_assert_str_eq(incoming.notice.owner, "");
    incoming_clear(&incoming);
    assert_kind("{\"event\":\"ok\",\"key\":\"k\",\"fence\":1}", INCOMING_NOTICE);
    ck_assert_int_eq(incoming.notice.kind, NOTICE_OK);
    incoming_clear(&incoming);
    assert_kind("{\"event\":\"moved\",\"key\":\"k\",\"to\":[]}", INCOMING_OTHER);
    ck_assert_str_eq(incoming.event, "moved");
    ck_assert_str_eq(incoming.notice.key, "k");
    incoming_clear(&incoming);
    assert_kind("{\"event\":\"weather\"}", INCOMING_OTHER);
    incoming_clear(&incoming);
}
END_TEST

START_TEST(garbage_is_told_apart)
{
    static const char *const garbage[] = {"",
                                          "hello",
                                          "[]",
                                          "1",
                                          "{}",
                                          "{\"id\":1}",
                                          "{\"id\":1,\"ok\":1}",
                                          "{\"id\":1,\"ok\":false}",
                                          "{\"id\":1,\"ok\":false,\"error\":5}",
                                          "{\"event\":5}",
                                          "{\"event\":\"lost\"}",
                                          "{\"id\":1,\"ok\":true",
                                          "{\"id\":1,\"ok\":true,\"key\":\"\xFF\"}",
                                          "[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]"};

    memset(&incoming, 0, sizeof(incoming));
    for (size_t i = 0; i < LB_ARRAY_LENGTH(garbage); i++) {
        ck_assert_msg(parse(garbage[i]) == INCOMING_E_GARBAGE, "%s", garbage[i]);
        ck_assert_ptr_null(incoming.storage);
    }
}
END_TEST

START_TEST(known_members_of_other_types_count_as_not_given)
{
    assert_kind("{\"id\":[],\"ok\":true,\"key\":1,\"fence\":\"1\",\"held\":1,\"holder\":5,"
                "\"limits\":1,\"backend\":5,\"locks\":{\"a\":1},\"counters\":[1],\"gauges\":null,"
                "\"histograms\":[],\"more\":null,\"valid_ms\":1.5}",
                INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.id.kind, REQUEST_ID_NONE);
    ck_assert_ptr_null(incoming.reply.key);
    ck_assert_int_eq(incoming.reply.fence, LB_NONE);
    ck_assert_int_eq(incoming.reply.valid_ms, LB_NONE);
    ck_assert_uint_eq(incoming.reply.rows_count, 0);
    ck_assert_ptr_null(incoming.reply.backend);
    ck_assert(!incoming.reply.held);
    incoming_clear(&incoming);
}
END_TEST

START_TEST(the_last_of_duplicate_members_counts)
{
    assert_kind("{\"id\":1,\"ok\":true,\"gauges\":{\"a\":1},\"gauges\":\"x\",\"counters\":{},"
                "\"key\":\"a\",\"key\":\"b\"}",
                INCOMING_REPLY);
    ck_assert_str_eq(incoming.reply.key, "b");
    ck_assert_ptr_null(incoming.reply.stats->gauges);
    ck_assert_uint_eq(incoming.reply.stats->gauges_count, 0);
    incoming_clear(&incoming);
}
END_TEST

START_TEST(hello_ping_and_release)
{
    assert_kind("{\"id\":1,\"ok\":true,\"server\":\"s\",\"version\":1,\"instance\":\"i\",\"host\":"
                "\"h\",\"limits\":{\"ttl_max_ms\":30000,\"max_wait_ms\":5},\"features\":[\"x\"]}",
                INCOMING_REPLY);
    ck_assert_str_eq(incoming.reply.server, "s");
    ck_assert_int_eq(incoming.reply.version, 1);
    ck_assert_str_eq(incoming.reply.instance, "i");
    ck_assert_str_eq(incoming.reply.host, "h");
    ck_assert_int_eq(incoming.reply.ttl_max_ms, 30000);
    ck_assert_int_eq(incoming.reply.max_wait_ms, 5);
    incoming_clear(&incoming);
    assert_kind("{\"id\":1,\"ok\":true,\"now_ms\":9,\"backend\":\"up\"}", INCOMING_REPLY);
    ck_assert_int_eq(incoming.reply.now_ms, 9);
    ck_assert_str_eq(incoming.reply.backend, "up");
    incoming_clear(&incoming);
    assert_kind("{\"id\":1,\"ok\":true,\"outcome\":\"was_lost\",\"reason\":\"expired\"}",
                INCOMING_REPLY);
    ck_assert_str_eq(incoming.reply.outcome, "was_lost");
    ck_assert_str_eq(incoming.reply.reason, "expired");
    incoming_clear(&incoming);
}
END_TEST

static const char list_line[] =
    "{\"id\":1,\"ok\":true,\"locks\":[{\"key\":\"a\",\"holder\":{\"kind\":\"local\",\"pid\":5},"
    "\"waiters\":2,\"state\":\"ok\"},{\"key\":\"b\",\"holder\":null,\"waiters\":1,\"state\":"
    "\"waiting\"},{},7],\"more\":true}";

static const char stats_line[] =
    "{\"id\":1,\"ok\":true,\"counters\":{\"a\":1,\"b\":2},\"gauges\":{\"c\":3},\"histograms\":{"
    "\"h\":{\"bounds\":[1,10],\"counts\":[5,0,1],\"sum\":99},\"e\":{}},\"backend\":{\"kind\":"
    "\"redis\",\"state\":\"up\",\"role\":\"master\",\"version\":\"7.0.15\",\"maxmemory_policy\":"
    "\"noeviction\",\"may_evict\":true}}";

START_TEST(a_list)
{
    assert_kind(list_line, INCOMING_REPLY);
    ck_assert(incoming.reply.more);
    ck_assert_uint_eq(incoming.reply.rows_count, 4);
    ck_assert_str_eq(incoming.reply.rows[0].key, "a");
    ck_assert_int_eq(incoming.reply.rows[0].holder.kind, HOLDER_LOCAL);
    ck_assert_int_eq(incoming.reply.rows[0].holder.pid, 5);
    ck_assert_int_eq(incoming.reply.rows[0].waiters, 2);
    ck_assert_str_eq(incoming.reply.rows[0].state, "ok");
    ck_assert_str_eq(incoming.reply.rows[1].key, "b");
    ck_assert_int_eq(incoming.reply.rows[1].holder.kind, HOLDER_NONE);
    ck_assert_str_eq(incoming.reply.rows[2].key, "");
    ck_assert_str_eq(incoming.reply.rows[3].state, "");
    incoming_clear(&incoming);
}
END_TEST

START_TEST(stats)
{
    const struct stats_page *page;

    assert_kind(stats_line, INCOMING_REPLY);
    page = incoming.reply.stats;
    ck_assert_uint_eq(page->counters_count, 2);
    ck_assert_str_eq(page->counters[1].name, "b");
    ck_assert_int_eq(page->counters[1].value, 2);
    ck_assert_uint_eq(page->gauges_count, 1);
    ck_assert_int_eq(page->gauges[0].value, 3);
    ck_assert_uint_eq(page->histograms_count, 2);
    ck_assert_str_eq(page->histograms[0].name, "h");
    ck_assert_uint_eq(page->histograms[0].bounds_count, 2);
    ck_assert_int_eq(page->histograms[0].bounds[1], 10);
    ck_assert_int_eq(page->histograms[0].counts[0], 5);
    ck_assert_int_eq(page->histograms[0].counts[2], 1);
    ck_assert_int_eq(page->histograms[0].sum, 99);
    ck_assert_uint_eq(page->histograms[1].bounds_count, 0);
    ck_assert_int_eq(page->histograms[1].counts[0], 0);
    ck_assert_str_eq(page->backend_kind, "redis");
    ck_assert_str_eq(page->backend_state, "up");
    ck_assert_str_eq(page->backend_role, "master");
    ck_assert_str_eq(page->backend_version, "7.0.15");
    ck_assert_str_eq(page->backend_policy, "noeviction");
    ck_assert(page->backend_may_evict);
    incoming_clear(&incoming);
}
END_TEST

// Writes a parsed line again: what comes out must be what was written first.
static void assert_round_trip(const struct reply *written, enum op op)
{
    struct buf first;
    struct buf second;

    buf_init(&first, LB_REPLY_LINE_BYTES_MAX);
    buf_init(&second, LB_REPLY_LINE_BYTES_MAX);
    ck_assert_int_eq(reply_write(&first, written), 0);
    ck_assert_int_eq(reply_parse(buf_bytes(&first), buf_length(&first) - 1, &incoming), 0);
    incoming.reply.op = op;
    ck_assert_int_eq(reply_write(&second, &incoming.reply), 0);
    ck_assert_uint_eq(buf_length(&first), buf_length(&second));
    ck_assert_mem_eq(buf_bytes(&first), buf_bytes(&second), buf_length(&first));
    incoming_clear(&incoming);
    buf_clear(&first);
    buf_clear(&second);
}

START_TEST(every_reply_comes_back_as_it_was_written)
{
    static const char *const lines[] = {list_line, stats_line};
    struct holder holder = {.kind = HOLDER_BROKER,
                            .host = "h\n\xC3\xA9",
                            .client = "c",
                            .pid = LB_NONE,
                            .uid = 0,
                            .fence = LB_INTEGER_MAX,
                            .held_ms = LB_NONE,
                            .without_expiry = true};
    struct reply reply;

    for (unsigned op = OP_NONE; op < OP_LIST; op++) {
        for (unsigned error = ERROR_NONE; error < ERROR_OTHER; error++) {
            reply_init(&reply);
            reply.id = (struct request_id){.kind = REQUEST_ID_TEXT, .text = "\"\\"};
            reply.op = op;
            reply.error = error;
            reply.holder = &holder;
            reply.held = true;
            reply.key = "k";
            reply.fence = LB_INTEGER_MAX;
            reply.reason = "r";
            reply.outcome = "o";
            reply.state = "s";
            reply.server = "v";
            reply.ttl_max_ms = 30000;
            reply.waiters = 3;
            reply.backend = "up";
            assert_round_trip(&reply, op);
        }
    }
    for (size_t i = 0; i < LB_ARRAY_LENGTH(lines); i++) {
        struct incoming written;

        ck_assert_int_eq(reply_parse(lines[i], strlen(lines[i]), &written), 0);
        written.reply.op = i == 0 ? OP_LIST : OP_STATS;
        assert_round_trip(&written.reply, written.reply.op);
        incoming_clear(&written);
    }
}
END_TEST

// Of our own allocations each fails once, and the one among them that asks whether there is enough
// for jansson. What jansson then does is not ours, so its own are left alone.
START_TEST(without_memory_nothing_is_kept)
{
    static const char *const lines[] = {list_line, stats_line,
                                        "{\"id\":1,\"ok\":true,\"holder\":{\"kind\":\"local\"}}",
                                        "{\"event\":\"ok\",\"key\":\"k\"}"};

    json_set_alloc_funcs(__real_malloc, free);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(lines); i++) {
        long good = 0;
        int r;

        memset(&incoming, 0, sizeof(incoming));
        do {
            alloc_fail_after(good++);
            r = reply_parse(lines[i], strlen(lines[i]), &incoming);
            (void)alloc_restore();
            if (r != 0) {
                ck_assert_int_eq(r, -ENOMEM);
                ck_assert_ptr_null(incoming.storage);
            }
        } while (r != 0);
        ck_assert_int_ge(good, 2);
        incoming_clear(&incoming);
    }
}
END_TEST

static void *no_memory(size_t size)
{
    (void)size;
    return NULL;
}

// When even its first allocation fails, jansson says so itself.
START_TEST(without_any_memory_for_jansson_nothing_is_kept)
{
    json_set_alloc_funcs(no_memory, free);
    incoming.storage = NULL;
    ck_assert_int_eq(parse("{\"id\":1,\"ok\":true,\"limits\":{}}"), -ENOMEM);
    ck_assert_ptr_null(incoming.storage);
    ck_assert_int_eq(parse("{\"id\":1,\"ok\":true}"), 0); // is read without it
    incoming_clear(&incoming);
}
END_TEST

// A plain line and one that goes to jansson for what is in it are read alike.
START_TEST(a_line_is_read_the_same_either_way)
{
    static const char *const members = "\"id\":\"x\\u00e9\",\"ok\":true,\"key\":\"k\",\"fence\":7,"
                                       "\"ttl_ms\":1.5,\"valid_ms\":null,\"held\":true,"
                                       "\"reason\":\"a\\n\",\"new\":\"y\"";
    static const char many[] = ",\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1";
    static const char *const ends[] = {"", ",\"newer\":{}", ",\"newer\":[1]", ",\"key\":\"k\"",
                                       many};
    char line[512];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(ends); i++) {
        (void)snprintf(line, sizeof(line), "{%s%s}", members, ends[i]);
        ck_assert_int_eq(parse(line), 0);
        ck_assert_int_eq(incoming.kind, INCOMING_REPLY);
        ck_assert_str_eq(incoming.reply.id.text, "x\xC3\xA9");
        ck_assert_str_eq(incoming.reply.key, "k");
        ck_assert_int_eq(incoming.reply.fence, 7);
        ck_assert_int_eq(incoming.reply.ttl_ms, LB_NONE);
        ck_assert_int_eq(incoming.reply.valid_ms, LB_NONE);
        ck_assert(incoming.reply.held);
        ck_assert_str_eq(incoming.reply.reason, "a\n");
        incoming_clear(&incoming);
    }
}
END_TEST

START_TEST(a_holder_of_no_kind_that_is_known_is_somebody)
{
    static const char *const kinds[] = {"7", "null", "\"newer\"", "\"\""};
    char line[100];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(kinds); i++) {
        (void)snprintf(line, sizeof(line),
                       "{\"id\":1,\"ok\":true,\"holder\":{\"kind\":%s,\"pid\":5}}", kinds[i]);
        assert_kind(line, INCOMING_REPLY);
        ck_assert_int_eq(incoming.reply.holder->kind, HOLDER_FOREIGN);
        ck_assert_int_eq(incoming.reply.holder->pid, 5);
        incoming_clear(&incoming);
    }
}
END_TEST

Suite *incoming_suite(void)
{
    Suite *suite = suite_create("incoming");
    TCase *tcase = tcase_create("incoming");

    tcase_add_test(tcase, a_grant);
    tcase_add_test(tcase, known_and_unknown_errors);
    tcase_add_test(tcase, holders_of_every_kind);
    tcase_add_test(tcase, notices_and_unknown_events);
    tcase_add_test(tcase, garbage_is_told_apart);
    tcase_add_test(tcase, known_members_of_other_types_count_as_not_given);
    tcase_add_test(tcase, the_last_of_duplicate_members_counts);
    tcase_add_test(tcase, hello_ping_and_release);
    tcase_add_test(tcase, a_list);
    tcase_add_test(tcase, stats);
    tcase_add_test(tcase, every_reply_comes_back_as_it_was_written);
    tcase_add_test(tcase, without_memory_nothing_is_kept);
    tcase_add_test(tcase, without_any_memory_for_jansson_nothing_is_kept);
    tcase_add_test(tcase, a_line_is_read_the_same_either_way);
    tcase_add_test(tcase, a_holder_of_no_kind_that_is_known_is_somebody);
    suite_add_tcase(suite, tcase);
    return suite;
}
