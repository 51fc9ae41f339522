// The channel in bad times: a connection that is lost, refused, half dead, or not to Redis.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "tests/unit/redis/channel_rig.h"
#include "tests/unit/redis/fake.h"
#include "tests/unit/redis/suites.h"

static struct server server;
static struct fake fake;
static struct ear ear;

static void setup(void)
{
    server_start(&server, false, NULL);
    ear_init(&ear, &server);
}

static void teardown(void)
{
    ear_close(&ear);
    server_stop(&server);
}

START_TEST(test_cut)
{
    ear_open_up(&ear);
    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(server_number(&server, "CLIENT KILL TYPE pubsub"), 1);
        ear_await_downs(&ear, i);
        ear_await_ups(&ear, i + 1);
        ear_assert_hears(&ear, &server);
    }
    ck_assert_int_eq(ear_figures(&ear).connects, 4);
    ck_assert_int_eq(ear_figures(&ear).pings_unanswered, 0);
}
END_TEST

START_TEST(test_killed_and_restarted)
{
    ear_open_up(&ear);
    server_kill(&server);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.downs, 1);
    server_launch(&server);
    ear_await_ups(&ear, 2);
    ear_assert_hears(&ear, &server);
}
END_TEST

START_TEST(test_stopped)
{
    ear.options.quiet_ms = 50;
    ear.options.answer_ms = 500;
    ear.options.connect_timeout_ms = 500;
    ear_open_up(&ear);
    server_pause(&server);
    ear_await_downs(&ear, 1);
    ck_assert_int_eq(ear_figures(&ear).pings_unanswered, 1);
    ear_await_failures(&ear, 1);
    server_resume(&server);
    ear_await_ups(&ear, 2);
    ear_run(&ear, 100);
    ear_assert_hears(&ear, &server);
}
END_TEST

START_TEST(test_clients_paused)
{
    ear.options.quiet_ms = 50;
    ear.options.answer_ms = 500;
    ear_open_up(&ear);
    server_run(&server, "CLIENT PAUSE 60000 ALL");
    ear_await_downs(&ear, 1);
    ck_assert_int_eq(ear_figures(&ear).pings_unanswered, 1);
}
END_TEST

static long long pings(void)
{
    redisReply *reply = server_command(&server, "INFO commandstats");
    const char *at = strstr(reply->str, "cmdstat_ping:calls=");
    long long calls = at ? strtoll(at + strlen("cmdstat_ping:calls="), NULL, 10) : 0;

    freeReplyObject(reply);
    return calls;
}

START_TEST(test_quiet_is_not_dead)
{
    int64_t until_ms = clock_now_ms() + RIG_PATIENCE_MS;

    ear.options.quiet_ms = 20;
    ear.options.answer_ms = 20000;
    ear_open_up(&ear);
    server_run(&server, "CONFIG RESETSTAT");
    while (pings() < 5 && clock_now_ms() < until_ms)
        ear_run(&ear, 20);
    ck_assert_int_ge(pings(), 5);
    ck_assert_int_eq(ear.downs, 0);
    ear_assert_hears(&ear, &server);
}
END_TEST

// What comes by itself shows as much as an answer.
START_TEST(test_no_ping_while_messages_come)
{
    ear.options.quiet_ms = 10000;
    ear_open_up(&ear);
    server_run(&server, "CONFIG RESETSTAT");
    for (int i = 0; i < 20; i++)
        ear_assert_hears(&ear, &server);
    ck_assert_int_eq(pings(), 0);
}
END_TEST

// It is we who did not run: the answer is there when we go on.
START_TEST(test_own_pause_is_not_blamed_on_redis)
{
    ear.options.quiet_ms = 50;
    ear.options.answer_ms = 3000;
    ear_open_up(&ear);
    for (int i = 0; i < 2; i++) {
        server_pause(&server);
        ear_run(&ear, 200); // the PING is on its way
        server_resume(&server);
        (void)pings();
        usleep(3200000);
        ear_run(&ear, 20);
    }
    ck_assert_int_eq(ear.downs, 0);
    ck_assert_int_eq(ear_figures(&ear).pings_unanswered, 0);
}
END_TEST

static void use_user(const char *rules)
{
    freeReplyObject(server_command(&server, "ACL SETUSER broker on >secret"));
    server_run(&server, rules);
    ear.options.address.user = "broker";
    ear.options.address.password = "secret";
}

START_TEST(test_channels_refused)
{
    use_user("ACL SETUSER broker +@all ~* resetchannels");
    ear_open(&ear);
    ear_await_failures(&ear, 3);
    ck_assert_int_eq(ear.ups, 0);
    server_run(&server, "ACL SETUSER broker &lockbroker:meta:wake:*");
    ear_await_ups(&ear, 1);
    ear_assert_hears(&ear, &server);
    server_run(&server, "ACL SETUSER broker resetchannels");
    ear_await_downs(&ear, 1);
    ear_await_failures(&ear, 5);
    ck_assert_int_eq(ear.ups, 1);
}
END_TEST

START_TEST(test_command_refused)
{
    use_user("ACL SETUSER broker +@all -subscribe ~* &*");
    ear_open(&ear);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.ups, 0);
    server_run(&server, "ACL SETUSER broker +subscribe");
    ear_await_ups(&ear, 1);
}
END_TEST

START_TEST(test_least_rights)
{
    int64_t until_ms = clock_now_ms() + RIG_PATIENCE_MS;
    redisReply *reply;

    use_user("ACL SETUSER broker resetchannels &lockbroker:meta:wake:* -@all +auth +client|setname "
             "+info +subscribe +ping");
    ear.options.quiet_ms = 20;
    ear_open_up(&ear);
    server_run(&server, "CONFIG RESETSTAT");
    while (pings() < 2 && clock_now_ms() < until_ms)
        ear_run(&ear, 20);
    ck_assert_int_ge(pings(), 2);
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear.downs, 0);
    reply = server_command(&server, "ACL LOG");
    ck_assert_uint_eq(reply->elements, 0);
    freeReplyObject(reply);
}
END_TEST

START_TEST(test_password_alone)
{
    ear.options.address.password = "secret";
    ear_open(&ear);
    ear_await_failures(&ear, 2);
    server_run(&server, "CONFIG SET requirepass secret");
    ear_await_ups(&ear, 1);
    ck_assert_int_eq(ear.downs, 0);
}
END_TEST

START_TEST(test_replica_is_refused)
{
    server_run(&server, "REPLICAOF 127.0.0.1 1");
    ear_open(&ear);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.ups, 0);
    server_run(&server, "REPLICAOF NO ONE");
    ear_await_ups(&ear, 1);
}
END_TEST

START_TEST(test_down_at_start)
{
    server_kill(&server);
    ear_open(&ear);
    ear_await_failures(&ear, 3);
    ck_assert_int_eq(ear.ups + ear.downs, 0);
    server_launch(&server);
    ear_await_ups(&ear, 1);
    ear_assert_hears(&ear, &server);
}
END_TEST

static void run_id_of(const struct server *of, char ret_run_id[64])
{
    redisReply *reply = server_command(of, "INFO server");
    const char *at = strstr(reply->str, "run_id:");

    ck_assert_ptr_nonnull(at);
    (void)snprintf(ret_run_id, 64, "%.40s", at + strlen("run_id:"));
    freeReplyObject(reply);
}

// A failover behind one address: the scripts run elsewhere now, and the old server still answers.
START_TEST(test_follows_the_uplink)
{
    char run_id[64];

    run_id_of(&server, run_id);
    ear_open_up(&ear);
    channel_follow(ear.channel, run_id);
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear.downs, 0);
    channel_follow(ear.channel, "another");
    ear_await_downs(&ear, 1);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.ups, 1);
    channel_follow(ear.channel, run_id);
    ear_await_ups(&ear, 2);
    channel_follow(ear.channel, NULL);
    ear_assert_hears(&ear, &server);
    ck_assert_int_eq(ear.downs, 1);
}
END_TEST

static void fake_setup(void)
{
    ear_init(&ear, NULL);
}

static void fake_teardown(void)
{
    fake_close(&fake);
    ear_close(&ear);
}

static void fake_use(const char *greeting)
{
    fake_init(&fake, &ear.loop, greeting);
    ear.options.address.path = fake.path;
}

#define GREETING_UNSUBSCRIBED "+OK\r\n" FAKE_SERVER "$13\r\nrole:master\r\n\r\n"
#define SUBSCRIBED            "*3\r\n$9\r\nsubscribe\r\n$37\r\n" EAR_CHANNEL "\r\n:1\r\n"

START_TEST(test_not_up_before_the_subscription_is_confirmed)
{
    fake_use(GREETING_UNSUBSCRIBED);
    ear_open(&ear);
    ear_run(&ear, 100);
    ck_assert_int_eq(ear.ups, 0);
    fake_send(&fake, SUBSCRIBED, strlen(SUBSCRIBED));
    ear_await_ups(&ear, 1);
}
END_TEST

START_TEST(test_never_confirmed)
{
    fake_use(GREETING_UNSUBSCRIBED);
    ear.options.connect_timeout_ms = 200;
    ear_open(&ear);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.ups, 0);
}
END_TEST

static const char *const no_confirmations[] = {
    "+OK\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*0\r\n",
    "-ERR unknown command `SUBSCRIBE`, with args beginning with: \r\n",
    "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
    "*3\r\n$7\r\nmessage\r\n$37\r\n" EAR_CHANNEL "\r\n$6\r\nturn a\r\n",
    "*3\r\n:1\r\n:1\r\n:1\r\n",
    "rubbish\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
};

START_TEST(test_other_than_confirmed)
{
    char greeting[512];

    (void)snprintf(greeting, sizeof(greeting), "%s%s", GREETING_UNSUBSCRIBED, no_confirmations[_i]);
    fake_use(greeting);
    ear_open(&ear);
    ear_await_failures(&ear, 2);
    ck_assert_int_eq(ear.ups, 0);
}
END_TEST

START_TEST(test_garbage_ends_the_connection)
{
    static const char *const replies[] = {
        "+OK\r\n",
        "+PONG\r\n",
        "-ERR no\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n$4\r\nping\r\n$0\r\n\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n$37\r\n" EAR_CHANNEL "\r\n:0\r\n",
        "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\na\r\n$11\r\nturn lock:a\r\n",
        "*2147483647\r\n",
        "*3\r\n$2147483646\r\n",
        "rubbish\r\n",
    };

    fake_use(GREETING_UNSUBSCRIBED SUBSCRIBED);
    ear_open_up(&ear);
    for (int i = 0; i < (int)LB_ARRAY_LENGTH(replies); i++) {
        fake_send(&fake, replies[i], strlen(replies[i]));
        ear_await_downs(&ear, i + 1);
        ear_await_ups(&ear, i + 2);
    }
    ck_assert_int_eq(ear.turns + ear.waits, 0);
}
END_TEST

START_TEST(test_messages_of_other_types)
{
    static const char messages[] = "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n:5\r\n"
                                   "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$-1\r\n"
                                   "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n*1\r\n$11\r\nturn lock:a\r\n"
                                   "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$11\r\nwait lock:b\r\n";

    fake_use(GREETING_UNSUBSCRIBED SUBSCRIBED);
    ear_open_up(&ear);
    fake_send(&fake, messages, sizeof(messages) - 1);
    ear_await_hints(&ear, 1);
    ck_assert_int_eq(ear.waits, 1);
    ck_assert_int_eq(ear_figures(&ear).messages, 4);
}
END_TEST

// A server that takes all in and says nothing more.
START_TEST(test_half_dead)
{
    fake_use(GREETING_UNSUBSCRIBED SUBSCRIBED);
    ear.options.quiet_ms = 50;
    ear.options.answer_ms = 100;
    ear_open_up(&ear);
    ear_await_downs(&ear, 2);
    ck_assert_int_eq(ear_figures(&ear).pings_unanswered, 2);
}
END_TEST

Suite *channel_trouble_suite(void)
{
    Suite *suite = suite_create("redis/channel_trouble");
    TCase *real = tcase_create("real redis");
    TCase *made = tcase_create("no redis");

    tcase_set_timeout(real, 120);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_add_test(real, test_cut);
    tcase_add_test(real, test_killed_and_restarted);
    tcase_add_test(real, test_stopped);
    tcase_add_test(real, test_clients_paused);
    tcase_add_test(real, test_quiet_is_not_dead);
    tcase_add_test(real, test_no_ping_while_messages_come);
    tcase_add_test(real, test_own_pause_is_not_blamed_on_redis);
    tcase_add_test(real, test_channels_refused);
    tcase_add_test(real, test_command_refused);
    tcase_add_test(real, test_least_rights);
    tcase_add_test(real, test_password_alone);
    tcase_add_test(real, test_replica_is_refused);
    tcase_add_test(real, test_down_at_start);
    tcase_add_test(real, test_follows_the_uplink);
    suite_add_tcase(suite, real);

    tcase_set_timeout(made, 120);
    tcase_add_checked_fixture(made, fake_setup, fake_teardown);
    tcase_add_test(made, test_not_up_before_the_subscription_is_confirmed);
    tcase_add_test(made, test_never_confirmed);
    tcase_add_loop_test(made, test_other_than_confirmed, 0, (int)LB_ARRAY_LENGTH(no_confirmations));
    tcase_add_test(made, test_garbage_ends_the_connection);
    tcase_add_test(made, test_messages_of_other_types);
    tcase_add_test(made, test_half_dead);
    suite_add_tcase(suite, made);
    return suite;
}
