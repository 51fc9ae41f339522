// The calls that wait, against a broker that splits, dies, is late, or says odd things.
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "tests/unit/client/scripted_broker.h"
#include "tests/unit/client/suites.h"

static const struct scripted_step whole_life[] = {
    SCRIPTED_HELLO,
    SCRIPTED_GRANT,
    {"\"check\"", "{\"event\":\"weather\",\"sun\":[1,2]}\n"
                  "{\"id\":$ID,\"ok\":true,\"held\":true,\"fence\":7,\"valid_ms\":1,"
                  "\"deadline_ms\":$D,\"state\":\"ok\",\"future\":{\"a\":null}}\n"},
    {"\"extend\"", "{\"id\":$ID,\"ok\":true,\"key\":\"k\",\"fence\":7,\"ttl_ms\":5000,"
                   "\"valid_ms\":1,\"deadline_ms\":$D}\n"},
    {"\"release\"", "{\"id\":$ID,\"ok\":true,\"outcome\":\"released\"}\n"},
    SCRIPTED_END,
};

static struct scripted_broker broker_of(const struct scripted_step *steps)
{
    return (struct scripted_broker){.steps = steps, .valid_ms = 60000, .dies_after = SIZE_MAX};
}

// Goes through all calls; returns the first result that is not 0.
static int live(struct scripted_broker *broker, struct lb_release_result *ret_result)
{
    struct lb_client *client = NULL;
    struct lb_grant *grant = NULL;
    int r = lb_connect(broker->path, NULL, &client);

    if (r == 0)
        r = lb_acquire(client, "k", NULL, &grant);
    if (r == 0)
        ck_assert(lb_valid(grant));
    if (r == 0)
        r = lb_check(grant);
    if (r == 0)
        r = lb_extend(grant, 5000, 0);
    if (r == 0)
        r = lb_release(grant, "done", ret_result);
    else if (grant)
        ck_assert_int_ne(lb_release(grant, NULL, ret_result), 0);
    lb_close(client);
    return r;
}

START_TEST(a_whole_life)
{
    struct scripted_broker broker = broker_of(whole_life);
    struct lb_release_result result = {.outcome = LB_UNCONFIRMED};

    // At once, byte by byte, and in pieces that never end with a line.
    broker.chunk = (size_t[]){0, 1, 7}[_i];
    scripted_broker_start(&broker);
    ck_assert_int_eq(live(&broker, &result), 0);
    ck_assert_int_eq(result.outcome, LB_RELEASED);
    scripted_broker_stop(&broker);
    ck_assert_uint_eq(broker.steps_done, 5);
}
END_TEST

START_TEST(a_broker_that_dies_at_any_byte)
{
    struct scripted_broker broker = broker_of(whole_life);
    struct lb_release_result result;
    size_t total;

    scripted_broker_start(&broker);
    ck_assert_int_eq(live(&broker, &result), 0);
    scripted_broker_stop(&broker);
    total = broker.written;
    for (size_t n = 0; n < total; n++) {
        broker = broker_of(whole_life);
        broker.dies_after = n;
        scripted_broker_start(&broker);
        ck_assert_int_eq(live(&broker, &result), -ENOTCONN);
        scripted_broker_stop(&broker);
    }
}
END_TEST

START_TEST(refusals_are_told_with_their_sentence)
{
    static const struct scripted_step steps[] = {
        SCRIPTED_HELLO,
        {"\"acquire\"", "{\"id\":$ID,\"ok\":false,\"error\":\"busy\",\"message\":\"it is taken\","
                        "\"holder\":{\"kind\":\"local\",\"pid\":12}}\n"},
        SCRIPTED_END,
    };
    struct scripted_broker broker = broker_of(steps);
    struct lb_client *client;
    struct lb_grant *grant;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, NULL, &client), 0);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), LB_E_BUSY);
    ck_assert_str_eq(lb_last_message(client), "it is taken");
    lb_close(client);
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(a_grant_that_comes_too_late_is_given_back)
{
    static const struct scripted_step steps[] = {
        SCRIPTED_HELLO,
        {"\"acquire\"", NULL},
        {"\"cancel\"", "{\"id\":2,\"ok\":true,\"fence\":9,\"ttl_ms\":1000,\"deadline_ms\":$D}\n"
                       "{\"id\":$ID,\"ok\":false,\"error\":\"not_pending\",\"message\":\"m\"}\n"},
        {"\"fence\":9", "{\"id\":$ID,\"ok\":true,\"outcome\":\"released\"}\n"},
        {"\"ping\"", "{\"id\":$ID,\"ok\":true,\"now_ms\":1,\"backend\":\"up\"}\n"},
        SCRIPTED_END,
    };
    struct lb_connect_options options = {.size = sizeof(options), .call_timeout_ms = 100};
    struct request request = {.op = OP_PING};
    struct scripted_broker broker = broker_of(steps);
    struct lb_client *client;
    struct lb_grant *grant;
    struct call *call;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, &options, &client), 0);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), -ETIMEDOUT);
    while (calls_first(&client->calls))
        ck_assert_int_eq(lb_dispatch(client), 0);
    ck_assert(TAILQ_EMPTY(&client->grants));
    ck_assert_int_eq(client_request(client, &request, 30000, &call), 0);
    calls_free(&client->calls, call);
    lb_close(client);
    scripted_broker_stop(&broker);
    ck_assert_uint_eq(broker.steps_done, 5);
}
END_TEST

START_TEST(release_tells_the_truth)
{
    static const struct scripted_step lost[] = {
        SCRIPTED_HELLO,
        SCRIPTED_GRANT,
        {"\"release\"",
         "{\"id\":$ID,\"ok\":true,\"outcome\":\"was_lost\",\"reason\":\"deleted\"}\n"},
        SCRIPTED_END,
    };
    static const struct scripted_step unconfirmed[] = {
        SCRIPTED_HELLO,
        SCRIPTED_GRANT,
        {"\"release\"",
         "{\"id\":$ID,\"ok\":true,\"outcome\":\"unconfirmed\",\"frees_within_ms\":1234}\n"},
        SCRIPTED_END,
    };
    struct scripted_broker broker = broker_of(_i == 0 ? lost : unconfirmed);
    struct lb_release_result result = {.outcome = LB_RELEASED};
    struct lb_client *client;
    struct lb_grant *grant;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, NULL, &client), 0);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), 0);
    ck_assert_int_eq(lb_release(grant, NULL, &result), 0);
    ck_assert_int_eq(result.outcome, _i == 0 ? LB_WAS_LOST : LB_UNCONFIRMED);
    ck_assert_str_eq(result.reason, _i == 0 ? "deleted" : "");
    ck_assert_int_eq(result.frees_within_ms, _i == 0 ? 0 : 1234);
    lb_close(client);
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(a_broker_that_accepts_and_is_silent)
{
    static const struct scripted_step steps[] = {{"\"hello\"", NULL}, SCRIPTED_END};
    struct lb_connect_options options = {.size = sizeof(options), .connect_timeout_ms = 100};
    struct scripted_broker broker = broker_of(steps);
    struct lb_client *client = (struct lb_client *)&broker;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, &options, &client), -ETIMEDOUT);
    ck_assert_ptr_null(client);
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(a_broker_that_takes_no_connection_says_why)
{
    static const struct scripted_step steps[] = {
        {"\"hello\"", "{\"id\":null,\"ok\":false,\"error\":\"quota\",\"limit\":\"connections_max\","
                      "\"message\":\"it is full\"}\n"},
        SCRIPTED_END,
    };
    char message[64] = "before";
    struct lb_connect_options options = {
        .size = sizeof(options), .message = message, .message_size = _i == 0 ? sizeof(message) : 5};
    struct scripted_broker broker = broker_of(steps);
    struct lb_client *client;

    broker.closes = true;
    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, &options, &client), LB_E_QUOTA);
    ck_assert_ptr_null(client);
    ck_assert_str_eq(message, _i == 0 ? "it is full" : "it i");
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(an_error_without_id_after_the_greeting_ends_the_connection)
{
    static const struct scripted_step steps[] = {
        SCRIPTED_HELLO,
        {"\"acquire\"", "{\"id\":null,\"ok\":false,\"error\":\"quota\",\"message\":\"m\"}\n"},
        SCRIPTED_END,
    };
    struct scripted_broker broker = broker_of(steps);
    struct lb_client *client;
    struct lb_grant *grant;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, NULL, &client), 0);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), -EPROTO);
    lb_close(client);
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(what_is_unavailable_is_told)
{
    static const struct scripted_step steps[] = {
        SCRIPTED_HELLO,
        {"\"acquire\"", "{\"id\":$ID,\"ok\":false,\"error\":\"unavailable\",\"message\":\"m\","
                        "\"reason\":\"quarantine\",\"ends_in_ms\":29000,\"may_block_ms\":7}\n"},
        {"\"acquire\"", "{\"id\":$ID,\"ok\":false,\"error\":\"busy\",\"message\":\"n\"}\n"},
        SCRIPTED_END,
    };
    struct scripted_broker broker = broker_of(steps);
    struct lb_grant *grant = (struct lb_grant *)&broker;
    struct lb_client *client;

    scripted_broker_start(&broker);
    ck_assert_int_eq(lb_connect(broker.path, NULL, &client), 0);
    ck_assert_str_eq(lb_last_reason(client), "");
    ck_assert_int_eq(lb_last_retry_ms(client), -1);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), LB_E_UNAVAILABLE);
    ck_assert_ptr_null(grant);
    ck_assert_str_eq(lb_last_reason(client), "quarantine");
    ck_assert_int_eq(lb_last_retry_ms(client), 29000);
    ck_assert_int_eq(lb_last_may_block_ms(client), 7);
    ck_assert_int_eq(lb_acquire(client, "k", NULL, &grant), LB_E_BUSY);
    ck_assert_str_eq(lb_last_reason(client), "");
    ck_assert_int_eq(lb_last_retry_ms(client), -1);
    ck_assert_int_eq(lb_last_may_block_ms(client), 0);
    lb_close(client);
    scripted_broker_stop(&broker);
}
END_TEST

START_TEST(a_failed_call_leaves_no_handle)
{
    struct lb_connect_options no_size = {.call_timeout_ms = 1};
    struct lb_client *client = (struct lb_client *)&no_size;

    ck_assert_int_eq(lb_connect("/nonexistent/socket", NULL, &client), -ENOENT);
    ck_assert_ptr_null(client);
    client = (struct lb_client *)&no_size;
    ck_assert_int_eq(lb_connect("/nonexistent/socket", &no_size, &client), -EBADR);
    ck_assert_ptr_null(client);
    lb_close(client);
}
END_TEST

START_TEST(no_broker_at_all)
{
    char path[200];
    struct lb_client *client;

    ck_assert_int_eq(lb_connect("/nonexistent/socket", NULL, &client), -ENOENT);
    ck_assert_int_eq(lb_connect("/etc/passwd", NULL, &client), -ENOTSOCK);
    ck_assert_int_eq(lb_connect("/etc", NULL, &client), -ENOTSOCK);
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    ck_assert_int_eq(lb_connect(path, NULL, &client), -ENAMETOOLONG);
    ck_assert_int_eq(setenv("LOCKBROKER_SOCKET", "/nonexistent/other", 1), 0);
    ck_assert_str_eq(client_socket_path(NULL), "/nonexistent/other");
    ck_assert_int_eq(lb_connect(NULL, NULL, &client), -ENOENT);
    ck_assert_int_eq(unsetenv("LOCKBROKER_SOCKET"), 0);
    ck_assert_str_eq(client_socket_path(NULL), "/run/lockbroker.sock");
    ck_assert_str_eq(client_socket_path("/x"), "/x");
}
END_TEST

START_TEST(every_result_has_a_sentence)
{
    for (int result = -200; result < 300; result++)
        ck_assert_uint_gt(strlen(lb_error_text(result)), 3);
    ck_assert_str_eq(lb_error_text(LB_E_BUSY), "the lock is held by another");
    ck_assert_str_eq(lb_error_text(LB_E_OTHER), "an error that this version does not know");
    ck_assert_str_eq(lb_version(), LB_VERSION);
}
END_TEST

Suite *sync_suite(void)
{
    Suite *suite = suite_create("client/sync");
    TCase *tcase = tcase_create("sync");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_whole_life, 0, 3);
    tcase_add_test(tcase, a_broker_that_dies_at_any_byte);
    tcase_add_test(tcase, refusals_are_told_with_their_sentence);
    tcase_add_test(tcase, a_grant_that_comes_too_late_is_given_back);
    tcase_add_loop_test(tcase, release_tells_the_truth, 0, 2);
    tcase_add_test(tcase, a_broker_that_accepts_and_is_silent);
    tcase_add_loop_test(tcase, a_broker_that_takes_no_connection_says_why, 0, 2);
    tcase_add_test(tcase, an_error_without_id_after_the_greeting_ends_the_connection);
    tcase_add_test(tcase, what_is_unavailable_is_told);
    tcase_add_test(tcase, a_failed_call_leaves_no_handle);
    tcase_add_test(tcase, no_broker_at_all);
    tcase_add_test(tcase, every_result_has_a_sentence);
    suite_add_tcase(suite, tcase);
    return suite;
}
