// Fences in blocks, and the queue of brokers for a lock, against a real Redis: two brokers, and the
// words that each of them would hear.
#include <stdio.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

#define OTHER_INSTANCE "ff00112233445566778899aabbccddee"
#define OTHER_TOKEN    "lb1:other:" OTHER_INSTANCE ":9"
#define QUEUE          COMMAND_QUEUE_START "lock:a"
#define KEPT_MS        30000

static struct server server;
static struct rig rig;   // queues as "us"
static struct rig other; // and as "them"
static redisContext *ears[2];
static char us[TOKEN_QUEUE_ID_LENGTH + 1];
static char them[TOKEN_QUEUE_ID_LENGTH + 1];

static redisContext *listen_as(const char *id)
{
    redisContext *context = server_connect(&server);
    redisReply *reply = redisCommand(context, "SUBSCRIBE " COMMAND_CHANNEL_START "%s", id);

    ck_assert(reply && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return context;
}

// The next word is that.
static void hears(redisContext *ear, const char *text)
{
    void *reply;
    const redisReply *message;

    ck_assert_int_eq(redisGetReply(ear, &reply), REDIS_OK);
    message = reply;
    ck_assert_uint_eq(message->elements, 3);
    ck_assert_str_eq(message->element[2]->str, text);
    freeReplyObject(reply);
}

// Nothing was said before what is said now.
static void heard_all(redisContext *ear, const char *id)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "PUBLISH " COMMAND_CHANNEL_START "%s end", id);
    ck_assert_int_eq(server_number(&server, command), 1);
    hears(ear, "end");
}

static void setup(void)
{
    server_start(&server, false, NULL);
    rig_init(&rig, &server);
    rig_open_up(&rig);
    rig_init(&other, &server);
    other.options.instance = OTHER_INSTANCE;
    rig_open_up(&other);
    rig.queue_ms = other.queue_ms = KEPT_MS;
    token_queue_id(RIG_INSTANCE, us);
    token_queue_id(OTHER_INSTANCE, them);
    ears[0] = listen_as(us);
    ears[1] = listen_as(them);
}

static void teardown(void)
{
    redisFree(ears[0]);
    redisFree(ears[1]);
    rig_close(&rig);
    rig_close(&other);
    server_stop(&server);
}

// The queue names those two (or one, or none), in that order.
static void queue_is(const char *first, const char *second)
{
    redisReply *reply = server_command(&server, "GET " QUEUE);
    char text[256] = "";
    char names[2][32] = {"", ""};

    if (reply->type == REDIS_REPLY_STRING)
        (void)snprintf(text, sizeof(text), "%s", reply->str);
    freeReplyObject(reply);
    (void)sscanf(text, "%16[0-9a-f]:%*[0-9]:%*[0-9] %16[0-9a-f]:", names[0], names[1]);
    ck_assert_str_eq(names[0], first);
    ck_assert_str_eq(names[1], second);
    if (*first)
        ck_assert_int_gt(server_number(&server, "PTTL " QUEUE), KEPT_MS / 2);
    ck_assert_int_le(server_number(&server, "PTTL " QUEUE), KEPT_MS);
}

static enum backend_result acquire(struct rig *who, uint64_t serial)
{
    return rig_acquire(who, "a", serial, 60000)->result;
}

START_TEST(test_block_of_fences)
{
    int64_t first;

    rig.fences = 256;
    first = rig_acquire(&rig, "a", 1, 60000)->fence;
    ck_assert_int_eq(rig_outcome(&rig, rig.ops_count)->fences, 256);
    ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), first + 255);

    // Another lock's, and a renewal's, lie above all of them.
    ck_assert_int_gt(rig_acquire(&other, "b", 1, 60000)->fence, first + 255);
    ck_assert_int_eq(rig_outcome(&other, other.ops_count)->fences, 1);

    int64_t last = server_number(&server, "GET lockbroker:meta:fence");
    const struct backend_outcome *renewed = rig_renew(&rig, "a", 1, 60000);

    ck_assert_int_eq(renewed->result, RESULT_OK);
    ck_assert_int_gt(renewed->fence, last);
    ck_assert_int_eq(renewed->fences, 256);
    ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), renewed->fence + 255);
    rig.fences = 0;
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->fences, 0);
}
END_TEST

// Else fences would fall when the counter is lost, and go on from the clock.
START_TEST(test_block_far_ahead_of_the_clock)
{
    char command[128];
    int64_t ahead_us = (server_time_ms(&server) + 3600000) * 1000;

    (void)snprintf(command, sizeof(command), "SET lockbroker:meta:fence %lld", (long long)ahead_us);
    server_run(&server, command);
    rig.fences = 256;
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->fence, ahead_us + 1);
    ck_assert_int_eq(rig_outcome(&rig, rig.ops_count)->fences, 1);
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, rig.ops_count)->fences, 0);
    ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), ahead_us + 1);
}
END_TEST

START_TEST(test_no_queue_no_key)
{
    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    ck_assert(!rig_outcome(&rig, rig.ops_count)->others_queue);
    other.queue_ms = 0;
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    ck_assert(!rig_release(&rig, "a", 1)->gave_turn);
    ck_assert_int_eq(server_number(&server, "EXISTS " QUEUE), 0);
    heard_all(ears[0], us);
    heard_all(ears[1], them);
}
END_TEST

// Who waits says so to the holder, is told when the lock is free, and leaves the queue with it.
START_TEST(test_from_one_to_the_other)
{
    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    queue_is(them, "");
    hears(ears[0], "wait lock:a");
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert(rig_release(&rig, "a", 1)->gave_turn);
    hears(ears[1], "turn lock:a");

    // It is kept for them: nobody else gets it, and who asks waits behind.
    ck_assert_int_eq(acquire(&rig, 2), RESULT_QUEUED);
    ck_assert_int_gt(rig_outcome(&rig, rig.ops_count)->ends_in_ms, 0);
    ck_assert_int_le(rig_outcome(&rig, rig.ops_count)->ends_in_ms, 250);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
    ck_assert_int_eq(acquire(&other, 1), RESULT_OK);
    ck_assert(rig_outcome(&other, other.ops_count)->others_queue);
    queue_is(us, "");
    ck_assert(rig_release(&other, "a", 1)->gave_turn);
    hears(ears[0], "turn lock:a");
    ck_assert_int_eq(acquire(&rig, 2), RESULT_OK);
    ck_assert(!rig_outcome(&rig, rig.ops_count)->others_queue);
    ck_assert_int_eq(server_number(&server, "EXISTS " QUEUE), 0);
    heard_all(ears[0], us);
    heard_all(ears[1], them);
}
END_TEST

START_TEST(test_a_place_is_kept)
{
    server_run(&server, "SET lock:a foreign");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    ck_assert_int_eq(acquire(&rig, 1), RESULT_BUSY);
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    ck_assert_int_eq(acquire(&rig, 1), RESULT_BUSY);
    queue_is(them, us);

    // The holder went without a word: whoever finds the key free tells the first.
    server_run(&server, "DEL lock:a");
    ck_assert_int_eq(acquire(&rig, 1), RESULT_QUEUED);
    hears(ears[1], "turn lock:a");
    queue_is(them, us);

    // Somebody else was quicker: they are the first all the same, and are told again.
    server_run(&server, "SET lock:a foreign");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    queue_is(them, us);
    ck_assert(rig_break(&rig, "a")->result == RESULT_OK);
    hears(ears[1], "turn lock:a");
    ck_assert_int_eq(acquire(&other, 1), RESULT_OK);
    queue_is(us, "");
}
END_TEST

START_TEST(test_a_place_is_given_up)
{
    server_run(&server, "SET lock:a foreign");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    ck_assert_int_eq(acquire(&rig, 1), RESULT_BUSY);
    ck_assert_int_eq(rig_release(&other, "a", 1)->result, RESULT_STOLEN);
    queue_is(us, "");
    server_run(&server, "DEL lock:a");

    // Whose turn it is and who wants it no more passes it on.
    ck_assert_int_eq(acquire(&other, 2), RESULT_QUEUED);
    hears(ears[0], "turn lock:a");
    ck_assert_int_eq(rig_release(&rig, "a", 1)->result, RESULT_GONE);
    ck_assert(rig_outcome(&rig, rig.ops_count)->gave_turn);
    hears(ears[1], "turn lock:a");
    queue_is(them, "");
}
END_TEST

// Whoever gives the lock back and has others that wait for it queues anew in the same moment, as
// the last one; alone in the queue nobody is told.
START_TEST(test_queues_anew_with_the_release)
{
    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    rig.again_ms = KEPT_MS;
    ck_assert_int_eq(rig_release(&rig, "a", 1)->result, RESULT_OK);
    ck_assert(!rig_outcome(&rig, rig.ops_count)->gave_turn);
    queue_is(us, "");
    ck_assert_int_eq(acquire(&rig, 2), RESULT_OK);
    queue_is("", "");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    hears(ears[0], "wait lock:a");
    ck_assert(rig_release(&rig, "a", 2)->gave_turn);
    hears(ears[1], "turn lock:a");
    queue_is(them, us);
    ck_assert_int_eq(acquire(&other, 1), RESULT_OK);
    ck_assert(rig_outcome(&other, other.ops_count)->others_queue);
    heard_all(ears[0], us);
}
END_TEST

// Who does not hear it is not there any more.
START_TEST(test_nobody_hears)
{
    char command[128];

    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    redisFree(ears[1]);
    (void)snprintf(command, sizeof(command), "PUBLISH " COMMAND_CHANNEL_START "%s x", them);
    while (server_number(&server, command) != 0)
        continue; // until the server has seen the end of the connection
    ck_assert(!rig_release(&rig, "a", 1)->gave_turn);
    ck_assert_int_eq(server_number(&server, "EXISTS " QUEUE), 0);
    ck_assert_int_eq(acquire(&rig, 2), RESULT_OK);
    ears[1] = listen_as(them);
}
END_TEST

// A turn that is not taken is over after a while, and the next one gets it.
START_TEST(test_a_turn_ends)
{
    enum backend_result result = RESULT_QUEUED;

    server_run(&server, "SET lock:a foreign");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    server_run(&server, "DEL lock:a");
    for (int64_t until = server_time_ms(&server) + 20000;
         result == RESULT_QUEUED && server_time_ms(&server) < until;)
        result = acquire(&rig, 1);
    ck_assert_int_eq(result, RESULT_OK);
    queue_is("", "");
    hears(ears[1], "turn lock:a");
    heard_all(ears[1], them);
}
END_TEST

START_TEST(test_places_end)
{
    char command[256];
    int64_t now_ms = server_time_ms(&server);

    // One that is over, one that nobody gives, rubbish; then a queue of another type.
    (void)snprintf(command, sizeof(command), "SET " QUEUE " %s:%lld:0|%s:%lld:0|rubbish", them,
                   (long long)now_ms - 1, them, (long long)now_ms + 3600000);
    server_run(&server, command);
    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    ck_assert(!rig_outcome(&rig, rig.ops_count)->others_queue);
    ck_assert_int_eq(server_number(&server, "EXISTS " QUEUE), 0);
    server_run(&server, "LPUSH " QUEUE " x");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    queue_is(them, "");
}
END_TEST

// One that would not hear of its turn takes what is free.
START_TEST(test_barging)
{
    server_run(&server, "SET lock:a foreign");
    ck_assert_int_eq(acquire(&other, 1), RESULT_BUSY);
    server_run(&server, "DEL lock:a");
    rig.queue_ms = 0;
    ck_assert_int_eq(acquire(&rig, 1), RESULT_QUEUED);
    rig.barges = true;
    server_run(&server, "SET lock:a " OTHER_TOKEN);
    ck_assert_int_eq(acquire(&rig, 1), RESULT_BUSY);
    hears(ears[1], "turn lock:a");
    hears(ears[1], "poll lock:a");
    server_run(&server, "DEL lock:a");
    ck_assert_int_eq(acquire(&rig, 1), RESULT_OK);
    ck_assert(rig_outcome(&rig, rig.ops_count)->others_queue);
    queue_is(them, "");
    ck_assert(rig_release(&rig, "a", 1)->gave_turn);
    hears(ears[1], "turn lock:a");
}
END_TEST

Suite *queue_suite(void)
{
    Suite *suite = suite_create("redis/queue");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_block_of_fences);
    tcase_add_test(tcase, test_block_far_ahead_of_the_clock);
    tcase_add_test(tcase, test_no_queue_no_key);
    tcase_add_test(tcase, test_from_one_to_the_other);
    tcase_add_test(tcase, test_a_place_is_kept);
    tcase_add_test(tcase, test_a_place_is_given_up);
    tcase_add_test(tcase, test_queues_anew_with_the_release);
    tcase_add_test(tcase, test_nobody_hears);
    tcase_add_test(tcase, test_a_turn_ends);
    tcase_add_test(tcase, test_places_end);
    tcase_add_test(tcase, test_barging);
    suite_add_tcase(suite, tcase);
    return suite;
}
