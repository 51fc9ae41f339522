// Replies and notices as they are written: each operation's success, each error, and the limits.
#include "proto/reply.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

static struct reply reply;

static void begin(enum op op)
{
    reply_init(&reply);
    reply.id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = 7};
    reply.op = op;
}

static void begin_error(enum error_code error)
{
    begin(OP_ACQUIRE);
    reply.error = error;
}

static void assert_bytes(struct buf *buf, const char *expected)
{
    ck_assert_int_eq(buf_append(buf, "", 1), 0);
    ck_assert_str_eq(buf_bytes(buf), expected);
    buf_clear(buf);
}

static void assert_written(const char *expected)
{
    struct buf buf;

    buf_init(&buf, 10000);
    ck_assert_int_eq(reply_write(&buf, &reply), 0);
    assert_bytes(&buf, expected);
}

START_TEST(ids_are_echoed)
{
    begin(OP_CANCEL);
    assert_written("{\"id\":7,\"ok\":true}\n");
    reply.id = (struct request_id){.kind = REQUEST_ID_TEXT, .text = "a\"b"};
    assert_written("{\"id\":\"a\\\"b\",\"ok\":true}\n");
    reply.id = (struct request_id){.kind = REQUEST_ID_NONE};
    assert_written("{\"id\":null,\"ok\":true}\n");
}
END_TEST

START_TEST(hello_tells_the_limits)
{
    begin(OP_HELLO);
    reply.server = "lockbrokerd 0.1.0";
    reply.version = 1;
    reply.instance = "abc";
    reply.host = "h1";
    reply.ttl_max_ms = 30000;
    reply.max_wait_ms = 3600000;
    assert_written(
        "{\"id\":7,\"ok\":true,\"server\":\"lockbrokerd 0.1.0\",\"version\":1,\"instance\":\"abc\","
        "\"host\":\"h1\",\"limits\":{\"ttl_min_ms\":1000,\"ttl_max_ms\":30000,\"ttl_max\":30000,"
        "\"max_wait_ms\":3600000,\"key_bytes\":512,\"owner_bytes\":128,\"note_bytes\":256,"
        "\"request_line_bytes\":8192,\"reply_line_bytes\":262144},\"features\":[]}\n");
}
END_TEST

START_TEST(ping_and_grants)
{
    begin(OP_PING);
    reply.now_ms = 5;
    reply.backend = "down";
    assert_written("{\"id\":7,\"ok\":true,\"now_ms\":5,\"backend\":\"down\"}\n");
    begin(OP_ACQUIRE);
    reply.key = "k";
    reply.fence = 1;
    reply.ttl_ms = 2;
    reply.valid_ms = 3;
    reply.deadline_ms = 4;
    reply.waited_ms = 0;
    assert_written("{\"id\":7,\"ok\":true,\"key\":\"k\",\"fence\":1,\"ttl_ms\":2,\"valid_ms\":3,"
                   "\"deadline_ms\":4,\"waited_ms\":0}\n");
    reply.op = OP_EXTEND;
    reply.waited_ms = LB_NONE;
    assert_written("{\"id\":7,\"ok\":true,\"key\":\"k\",\"fence\":1,\"ttl_ms\":2,\"valid_ms\":3,"
                   "\"deadline_ms\":4}\n");
    reply.op = OP_CHECK;
    reply.held = true;
    reply.state = "ok";
    assert_written("{\"id\":7,\"ok\":true,\"held\":true,\"fence\":1,\"valid_ms\":3,"
                   "\"deadline_ms\":4,\"state\":\"ok\"}\n");
    reply.held = false;
    assert_written("{\"id\":7,\"ok\":true,\"held\":false}\n");
}
END_TEST

START_TEST(release_tells_the_outcome)
{
    begin(OP_RELEASE);
    reply.outcome = "released";
    assert_written("{\"id\":7,\"ok\":true,\"outcome\":\"released\"}\n");
    reply.outcome = "was_lost";
    reply.reason = "deleted";
    assert_written("{\"id\":7,\"ok\":true,\"outcome\":\"was_lost\",\"reason\":\"deleted\"}\n");
    begin(OP_RELEASE);
    reply.outcome = "unconfirmed";
    reply.frees_within_ms = 9;
    assert_written("{\"id\":7,\"ok\":true,\"outcome\":\"unconfirmed\",\"frees_within_ms\":9}\n");
}
END_TEST

static struct holder holder_of(enum holder_kind kind)
{
    return (struct holder){.kind = kind,
                           .pid = LB_NONE,
                           .uid = LB_NONE,
                           .fence = LB_NONE,
                           .held_ms = LB_NONE,
                           .ttl_left_ms = LB_NONE};
}

START_TEST(query_and_break_show_the_holder)
{
    struct holder holder = holder_of(HOLDER_LOCAL);

    begin(OP_QUERY);
    reply.waiters = 0;
    assert_written("{\"id\":7,\"ok\":true,\"held\":false,\"holder\":null,\"waiters\":0}\n");
    reply.held = true;
    reply.holder = &holder;
    holder.host = "h1";
    holder.pid = 1;
    holder.uid = 0;
    holder.client = "c";
    holder.note = "";
    holder.fence = 3;
    holder.held_ms = 4;
    holder.ttl_left_ms = 5;
    assert_written("{\"id\":7,\"ok\":true,\"held\":true,\"holder\":{\"kind\":\"local\",\"host\":"
                   "\"h1\",\"pid\":1,\"uid\":0,\"client\":\"c\",\"fence\":3,\"held_ms\":4,"
                   "\"ttl_left_ms\":5},\"waiters\":0}\n");
    holder = holder_of(HOLDER_BROKER);
    holder.host = "h\xFF";
    holder.ttl_left_ms = 5;
    begin(OP_BREAK);
    reply.held = true;
    reply.holder = &holder;
    assert_written("{\"id\":7,\"ok\":true,\"broken\":true,\"holder\":{\"kind\":\"broker\",\"host\":"
                   "\"h\xEF\xBF\xBD\",\"ttl_left_ms\":5}}\n");
    holder = holder_of(HOLDER_FOREIGN);
    holder.without_expiry = true;
    assert_written("{\"id\":7,\"ok\":true,\"broken\":true,\"holder\":{\"kind\":\"foreign\","
                   "\"ttl_left_ms\":null}}\n");
    holder = holder_of(HOLDER_NONE);
    reply.held = false;
    assert_written("{\"id\":7,\"ok\":true,\"broken\":false,\"holder\":null}\n");
}
END_TEST

START_TEST(every_error_has_its_name_and_a_sentence)
{
    static const char *const names[] = {"malformed", "too_long",    "unknown_op", "bad_field",
                                        "busy",      "timeout",     "cancelled",  "already_held",
                                        "not_held",  "not_pending", "conflict",   "denied",
                                        "quota",     "unavailable", "draining",   "internal"};

    ck_assert_uint_eq(LB_ARRAY_LENGTH(names), ERROR_OTHER - 1);
    for (unsigned i = ERROR_NONE + 1; i < ERROR_OTHER; i++) {
        char expected[300];

        ck_assert_str_eq(error_name(i), names[i - 1]);
        begin_error(i);
        (void)snprintf(expected, sizeof(expected),
                       "{\"id\":7,\"ok\":false,\"error\":\"%s\",\"message\":\"%s\"}\n",
                       names[i - 1], error_text(i));
        assert_written(expected);
    }
}
END_TEST

START_TEST(errors_carry_their_fields)
{
    struct holder holder = holder_of(HOLDER_FOREIGN);

    holder.ttl_left_ms = 5;
    begin_error(ERROR_BAD_FIELD);
    reply.field = "ttl_ms";
    reply.message = "m";
    assert_written("{\"id\":7,\"ok\":false,\"error\":\"bad_field\",\"message\":\"m\",\"field\":"
                   "\"ttl_ms\"}\n");
    begin_error(ERROR_TIMEOUT);
    reply.message = "m";
    reply.holder = &holder;
    reply.waited_ms = 100;
    assert_written("{\"id\":7,\"ok\":false,\"error\":\"timeout\",\"message\":\"m\",\"holder\":{"
                   "\"kind\":\"foreign\",\"ttl_left_ms\":5},\"waited_ms\":100}\n");
    begin_error(ERROR_QUOTA);
    reply.message = "m";
    reply.limit = "requests_max";
    assert_written("{\"id\":7,\"ok\":false,\"error\":\"quota\",\"message\":\"m\",\"limit\":"
                   "\"requests_max\"}\n");
    begin_error(ERROR_UNAVAILABLE);
    reply.message = "m";
    reply.reason = "down";
    reply.may_block_ms = 1;
    reply.ends_in_ms = 2;
    assert_written("{\"id\":7,\"ok\":false,\"error\":\"unavailable\",\"message\":\"m\",\"reason\":"
                   "\"down\",\"may_block_ms\":1,\"ends_in_ms\":2}\n");
}
END_TEST

START_TEST(list_shows_rows)
{
    struct lock_row rows[2] = {
        {.key = "a", .holder = holder_of(HOLDER_LOCAL), .waiters = 2, .state = "ok"},
        {.key = "b", .holder = holder_of(HOLDER_NONE), .waiters = 1, .state = "waiting"}};

    begin(OP_LIST);
    assert_written("{\"id\":7,\"ok\":true,\"locks\":[],\"more\":false}\n");
    reply.rows = rows;
    reply.rows_count = 2;
    reply.more = true;
    assert_written(
        "{\"id\":7,\"ok\":true,\"locks\":[{\"key\":\"a\",\"holder\":{\"kind\":\"local\"},"
        "\"waiters\":2,\"state\":\"ok\"},{\"key\":\"b\",\"holder\":null,\"waiters\":1,"
        "\"state\":\"waiting\"}],\"more\":true}\n");
}
END_TEST

static void assert_list_is_cut(struct buf *buf)
{
    json_t *line;

    buf_clear(buf);
    ck_assert_int_eq(buf_append(buf, "{}\n", 3), 0);
    ck_assert_int_eq(reply_write(buf, &reply), 0);
    buf_consume(buf, 3);
    ck_assert_uint_le(buf_length(buf), LB_REPLY_LINE_BYTES_MAX);
    ck_assert_uint_gt(buf_length(buf), LB_REPLY_LINE_BYTES_MAX - 1200);
    line = json_loadb(buf_bytes(buf), buf_length(buf), JSON_REJECT_DUPLICATES, NULL);
    ck_assert(json_is_true(json_object_get(line, "more")));
    json_decref(line);
}

// The first row's key shifts all rows, in steps smaller than the end of the line, so that the limit
// falls everywhere within a row and within that end.
START_TEST(a_list_never_passes_the_limit_of_a_line)
{
    struct lock_row *rows = calloc(1000, sizeof(*rows));
    char first[LB_KEY_BYTES_MAX + 1] = "";
    char key[121] = "";
    struct buf buf;

    ck_assert_ptr_nonnull(rows);
    memset(key, '"', sizeof(key) - 1);
    for (size_t i = 0; i < 1000; i++)
        rows[i] = (struct lock_row){
            .key = key, .holder = holder_of(HOLDER_LOCAL), .waiters = 0, .state = "ok"};
    rows[0].key = first;
    begin(OP_LIST);
    reply.rows = rows;
    reply.rows_count = 1000;
    buf_init(&buf, (size_t)4 * LB_REPLY_LINE_BYTES_MAX);
    for (size_t length = 1; length < 300; length += 7) {
        memset(first, 'k', length);
        assert_list_is_cut(&buf);
    }
    buf_clear(&buf);
    free(rows);
}
END_TEST

START_TEST(stats_are_three_objects_and_the_backend)
{
    static const struct stat_value counters[] = {{"requests", 3}, {"granted", 2}};
    static const struct stat_value gauges[] = {{"held", 1}};
    static const int64_t bounds[] = {1, 10};
    static const int64_t counts[] = {5, 0, 1};
    static const struct stat_histogram histograms[] = {{"wait_ms", bounds, counts, 2, 99}};
    struct stats_page page = {.counters = counters,
                              .counters_count = 2,
                              .gauges = gauges,
                              .gauges_count = 1,
                              .histograms = histograms,
                              .histograms_count = 1,
                              .backend_kind = "redis",
                              .backend_state = "up",
                              .backend_role = "master",
                              .backend_version = "7.0.15",
                              .backend_policy = "allkeys-lru",
                              .backend_may_evict = true};

    begin(OP_STATS);
    reply.stats = &page;
    assert_written(
        "{\"id\":7,\"ok\":true,\"counters\":{\"requests\":3,\"granted\":2},\"gauges\":{"
        "\"held\":1},\"histograms\":{\"wait_ms\":{\"bounds\":[1,10],\"counts\":[5,0,1],"
        "\"sum\":99}},\"backend\":{\"kind\":\"redis\",\"state\":\"up\",\"role\":\"master\","
        "\"version\":\"7.0.15\",\"maxmemory_policy\":\"allkeys-lru\",\"may_evict\":true}}\n");
    page = (struct stats_page){.backend_kind = "memory", .backend_state = "up"};
    assert_written("{\"id\":7,\"ok\":true,\"counters\":{},\"gauges\":{},\"histograms\":{},"
                   "\"backend\":{\"kind\":\"memory\",\"state\":\"up\",\"may_evict\":false}}\n");
}
END_TEST

static void assert_notice(const struct notice *notice, const char *expected)
{
    struct buf buf;

    buf_init(&buf, 1000);
    ck_assert_int_eq(notice_write(&buf, notice), 0);
    assert_bytes(&buf, expected);
}

START_TEST(notices)
{
    struct notice notice = {.kind = NOTICE_SUSPECT,
                            .key = "k",
                            .owner = "",
                            .fence = 1,
                            .valid_ms = 2,
                            .deadline_ms = 3,
                            .reason = "unconfirmed"};

    assert_notice(&notice, "{\"event\":\"suspect\",\"key\":\"k\",\"fence\":1,\"valid_ms\":2,"
                           "\"deadline_ms\":3,\"reason\":\"unconfirmed\"}\n");
    notice.kind = NOTICE_OK;
    notice.owner = "o";
    notice.reason = NULL;
    assert_notice(&notice, "{\"event\":\"ok\",\"key\":\"k\",\"owner\":\"o\",\"fence\":1,"
                           "\"valid_ms\":2,\"deadline_ms\":3}\n");
    notice.kind = NOTICE_LOST;
    notice.valid_ms = LB_NONE;
    notice.reason = "expired";
    assert_notice(&notice, "{\"event\":\"lost\",\"key\":\"k\",\"owner\":\"o\",\"fence\":1,"
                           "\"deadline_ms\":3,\"reason\":\"expired\"}\n");
}
END_TEST

START_TEST(what_does_not_fit_leaves_the_buffer_alone)
{
    struct notice notice = {
        .kind = NOTICE_OK, .key = "k", .fence = 1, .valid_ms = 2, .deadline_ms = 3};
    char *huge = malloc(LB_REPLY_LINE_BYTES_MAX + 1);
    struct buf buf;

    ck_assert_ptr_nonnull(huge);
    begin(OP_PING);
    buf_init(&buf, 20);
    ck_assert_int_eq(buf_append(&buf, "before", 6), 0);
    ck_assert_int_eq(reply_write(&buf, &reply), -ENOBUFS);
    ck_assert_int_eq(notice_write(&buf, &notice), -ENOBUFS);
    ck_assert_uint_eq(buf_length(&buf), 6);
    buf_clear(&buf);
    buf_init(&buf, 1000);
    alloc_fail_after(0);
    ck_assert_int_eq(reply_write(&buf, &reply), -ENOMEM);
    alloc_fail_after(0);
    ck_assert_int_eq(notice_write(&buf, &notice), -ENOMEM);
    (void)alloc_restore();
    ck_assert_uint_eq(buf_length(&buf), 0);
    buf_clear(&buf);
    memset(huge, 'x', LB_REPLY_LINE_BYTES_MAX);
    huge[LB_REPLY_LINE_BYTES_MAX] = '\0';
    reply.backend = huge;
    buf_init(&buf, (size_t)4 * LB_REPLY_LINE_BYTES_MAX);
    ck_assert_int_eq(reply_write(&buf, &reply), -ENOBUFS);
    ck_assert_uint_eq(buf_length(&buf), 0);
    buf_clear(&buf);
    free(huge);
}
END_TEST

Suite *reply_suite(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("reply");

    tcase_set_timeout(tcase, 60); // the longest list is megabytes of work
    tcase_add_test(tcase, ids_are_echoed);
    tcase_add_test(tcase, hello_tells_the_limits);
    tcase_add_test(tcase, ping_and_grants);
    tcase_add_test(tcase, release_tells_the_outcome);
    tcase_add_test(tcase, query_and_break_show_the_holder);
    tcase_add_test(tcase, every_error_has_its_name_and_a_sentence);
    tcase_add_test(tcase, errors_carry_their_fields);
    tcase_add_test(tcase, list_shows_rows);
    tcase_add_test(tcase, a_list_never_passes_the_limit_of_a_line);
    tcase_add_test(tcase, stats_are_three_objects_and_the_backend);
    tcase_add_test(tcase, notices);
    tcase_add_test(tcase, what_does_not_fit_leaves_the_buffer_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
