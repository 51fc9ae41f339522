// The channel in good times: what is heard and what is not, closing at any time.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "tests/unit/redis/channel_rig.h"
#include "tests/unit/redis/suites.h"

static struct server server;
static struct ear ear;

static void setup(void)
{
    server_start(&server, true, NULL);
    ear_init(&ear, &server);
}

static void teardown(void)
{
    ear_close(&ear);
    server_stop(&server);
}

START_TEST(test_up_is_subscribed)
{
    redisReply *reply;

    ear_open_up(&ear);
    ck_assert_int_eq(ear_hearers(&server), 1);
    reply = server_command(&server, "CLIENT LIST TYPE pubsub");
    ck_assert_ptr_nonnull(strstr(reply->str, "name=lockbrokerd-" RIG_HOST "-channel "));
    freeReplyObject(reply);
    ear_assert_hears(&ear, &server);
}
END_TEST

START_TEST(test_up_by_address_and_by_name)
{
    ear_use_tcp(&ear, _i ? "localhost" : "127.0.0.1", server.port);
    ear_open_up(&ear);
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear.downs, 0);
}
END_TEST

START_TEST(test_hints)
{
    ear_open_up(&ear);
    (void)ear_say(&server, "turn lock:a");
    ear_await_hints(&ear, 1);
    ck_assert_int_eq(ear.turns, 1);
    ck_assert_str_eq(ear.key, "a");
    (void)ear_say(&server, "wait lock:b c:d");
    ear_await_hints(&ear, 2);
    ck_assert_int_eq(ear.waits, 1);
    ck_assert_int_eq(ear.polls, 0);
    ck_assert_str_eq(ear.key, "b c:d");
    (void)ear_say(&server, "poll lock:e");
    ear_await_hints(&ear, 3);
    ck_assert_int_eq(ear.polls, 1);
    ck_assert_str_eq(ear.key, "e");
    ck_assert_int_eq(ear_figures(&ear).messages, 3);
}
END_TEST

START_TEST(test_without_a_prefix)
{
    ear.options.prefix = "";
    ear_open_up(&ear);
    (void)ear_say(&server, "wait lock:a");
    ear_await_hints(&ear, 1);
    ck_assert_str_eq(ear.key, "lock:a");
}
END_TEST

START_TEST(test_many_hints_at_once)
{
    ear_open_up(&ear);
    freeReplyObject(server_command(&server, "EVAL %s 0",
                                   "for i = 1, 5000 do redis.call('PUBLISH', '" EAR_CHANNEL
                                   "', 'turn lock:' .. i) end"));
    ear_await_hints(&ear, 5000);
    ck_assert_str_eq(ear.key, "5000");
    ck_assert_int_eq(ear.downs, 0);
}
END_TEST

START_TEST(test_what_is_no_hint_is_ignored)
{
    static const char *const texts[] = {
        "",
        "turn",
        "turn ",
        "turn lock:",
        "turn lock",
        "turn other:a",
        "Turn lock:a",
        " turn lock:a",
        "turn  lock:a",
        "turnlock:a",
        "waiting lock:a",
        "a",
        "\r\n",
        "turn\nlock:a",
    };
    static const char with_nul[] = "turn lock:a\0b";
    static char longest[10 + LB_KEY_BYTES_MAX + 1];
    static char large[RESP_TEXT_BYTES_MAX];

    ear_open_up(&ear);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(texts); i++)
        ck_assert_int_eq(ear_say(&server, texts[i]), 1);
    (void)ear_publish(&server, with_nul, sizeof(with_nul) - 1);
    (void)ear_publish(&server, "\0\xff\x80", 3);
    memset(large, 'x', sizeof(large));
    (void)ear_publish(&server, large, sizeof(large));
    memset(longest, 'k', sizeof(longest));
    memcpy(longest, "turn lock:", 10);
    (void)ear_publish(&server, longest, sizeof(longest));
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear_figures(&ear).messages, (int)LB_ARRAY_LENGTH(texts) + 5);
    (void)ear_publish(&server, longest, sizeof(longest) - 1);
    ear_await_hints(&ear, 2);
    ck_assert_uint_eq(strlen(ear.key), LB_KEY_BYTES_MAX);
    ck_assert_int_eq(ear.downs, 0);
}
END_TEST

// More than is kept in memory for one reply costs the connection, and no more than that.
START_TEST(test_a_huge_message)
{
    size_t length = (size_t)4 << 20;
    char *huge = malloc(length);

    memset(huge, 'x', length);
    ear_open_up(&ear);
    (void)ear_publish(&server, huge, length);
    free(huge);
    ear_await_downs(&ear, 1);
    ear_await_ups(&ear, 2);
    ear_assert_hears(&ear, &server);
}
END_TEST

START_TEST(test_another_brokers_channel)
{
    ear_open_up(&ear);
    freeReplyObject(server_command(&server, "PUBLISH %s %s",
                                   COMMAND_CHANNEL_START "0123456789abcdef", "turn a"));
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear_figures(&ear).messages, 1);
}
END_TEST

static void options_refused(void)
{
    struct channel *channel;

    ck_assert_int_eq(channel_new(&ear.loop, &ear.options, &channel), -EINVAL);
}

START_TEST(test_bad_options)
{
    struct channel_options good = ear.options;

    ear.options.quiet_ms = 0;
    options_refused();
    ear.options = good;
    ear.options.answer_ms = 0;
    options_refused();
    ear.options = good;
    ear.options.address.path = "";
    options_refused();
    ear.options = good;
    ear.options.connect_timeout_ms = 0;
    options_refused();
}
END_TEST

START_TEST(test_close_before_open)
{
    ck_assert_int_eq(channel_new(&ear.loop, &ear.options, &ear.channel), 0);
}
END_TEST

START_TEST(test_close_at_any_turn)
{
    static const char *const hosts[] = {NULL, "127.0.0.1", "localhost"};

    for (size_t i = 0; i < 3; i++) {
        for (int turns = 0; turns < 12; turns++) {
            ear_close(&ear);
            ear_init(&ear, &server);
            if (hosts[i])
                ear_use_tcp(&ear, hosts[i], server.port);
            ear.options.quiet_ms = 1;
            ear_open(&ear);
            for (int turn = 0; turn < turns; turn++)
                (void)uv_run(&ear.loop, UV_RUN_NOWAIT);
        }
    }
}
END_TEST

static void close_and_forget(void)
{
    channel_close(ear.channel);
    ear.channel = NULL;
    ear.ups = ear.downs = 0;
    ear_run(&ear, 20);
}

START_TEST(test_close_in_every_state)
{
    ear.options.quiet_ms = 1;
    server_pause(&server);
    ear_open(&ear); // it connects, and is not greeted
    ear_run(&ear, 50);
    close_and_forget();
    server_resume(&server);
    ear_open_up(&ear);
    close_and_forget();
    ear_open_up(&ear);
    server_pause(&server);
    ear_run(&ear, 50); // a PING is on its way
    close_and_forget();
    server_kill(&server);
    ear_open(&ear);
    ear_await_failures(&ear, 4); // in a pause
    channel_close(ear.channel);
    channel_close(ear.channel);
    ear.channel = NULL;
    ear_run(&ear, 20);
    ck_assert_int_eq(ear.ups + ear.downs, 0);
}
END_TEST

Suite *channel_suite(void)
{
    Suite *suite = suite_create("redis/channel");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_up_is_subscribed);
    tcase_add_loop_test(tcase, test_up_by_address_and_by_name, 0, 2);
    tcase_add_test(tcase, test_hints);
    tcase_add_test(tcase, test_without_a_prefix);
    tcase_add_test(tcase, test_many_hints_at_once);
    tcase_add_test(tcase, test_what_is_no_hint_is_ignored);
    tcase_add_test(tcase, test_a_huge_message);
    tcase_add_test(tcase, test_another_brokers_channel);
    tcase_add_test(tcase, test_bad_options);
    tcase_add_test(tcase, test_close_before_open);
    tcase_add_test(tcase, test_close_at_any_turn);
    tcase_add_test(tcase, test_close_in_every_state);
    suite_add_tcase(suite, tcase);
    return suite;
}
