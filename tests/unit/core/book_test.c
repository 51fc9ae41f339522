// Effects and the small bookkeeping around them; and that broker_check() finds books that are
// wrong.
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "daemon/core/book.h"
#include "tests/unit/core/suites.h"
#include "tests/unit/core/world.h"

static struct broker *broker;
static struct effects effects;

static void setup(void)
{
    struct broker_config config = {.ttl_max_ms = 30000, .server = "s", .host = "h"};

    ck_assert_int_eq(broker_new(&config, 1, &broker), 0);
    effects.count = 0;
    broker->effects = &effects;
    broker->now_ms = 100;
}

static void teardown(void)
{
    broker_free(broker);
}

START_TEST(a_reply_begins_empty)
{
    struct request_id id = {.kind = REQUEST_ID_NUMBER, .number = 4};
    struct session session = {.id = 9};
    struct reply *reply = broker_reply(broker, &session, &id, OP_CHECK);

    ck_assert_uint_eq(effects.count, 1);
    ck_assert_uint_eq(effects.items[0].session, 9);
    ck_assert_uint_eq(effects.items[0].grant_id, 0);
    ck_assert_int_eq(reply->op, OP_CHECK);
    ck_assert_int_eq(reply->id.number, 4);
    ck_assert_int_eq(reply->error, ERROR_NONE);
    ck_assert(reply->fence == LB_NONE && reply->waited_ms == LB_NONE && !reply->holder);
    session.closed = true;
    (void)broker_refuse(broker, &session, &id, OP_CHECK, ERROR_BUSY);
    ck_assert_uint_eq(effects.items[1].session, 0); // goes nowhere
    ck_assert_int_eq(effects.items[1].reply.error, ERROR_BUSY);
    (void)broker_reply(broker, NULL, &id, OP_CHECK);
    ck_assert_uint_eq(effects.items[2].session, 0);
}
END_TEST

START_TEST(a_holder_belongs_to_its_reply)
{
    struct request_id id = {.kind = REQUEST_ID_NONE};
    struct reply *reply = broker_refuse(broker, NULL, &id, OP_ACQUIRE, ERROR_BUSY);
    struct holder *holder = broker_reply_holder(broker, reply);

    ck_assert_ptr_eq(reply->holder, holder);
    ck_assert_ptr_eq(holder, &effects.items[0].holder);
    ck_assert(holder->pid == LB_NONE && holder->uid == LB_NONE && holder->fence == LB_NONE);
    ck_assert(holder->held_ms == LB_NONE && holder->ttl_left_ms == LB_NONE);
}
END_TEST

START_TEST(an_operation_finds_its_flight)
{
    struct flight flight = {0};
    struct backend_op *op = broker_start(broker, &flight, BACKEND_QUERY, broker, "k");

    ck_assert_uint_eq(op->op_id, flight.op_id);
    ck_assert_ptr_eq(flight_tree_find(&broker->flights, op->op_id), &flight);
    ck_assert_int_eq(op->timeout_ms, 2000);
    ck_assert_str_eq(op->key, "k");
    flight_tree_remove(&broker->flights, &flight);
}
END_TEST

START_TEST(notices_go_to_the_living)
{
    struct session session = {.id = 9};
    struct claim claim = {.key = "k", .owner = "", .fence = 3, .deadline_ms = 150};

    broker_notify(broker, &claim, NOTICE_OK, NULL);
    ck_assert_uint_eq(effects.count, 0);
    claim.session = &session;
    broker_notify(broker, &claim, NOTICE_OK, NULL);
    ck_assert_uint_eq(effects.items[0].session, 9);
    ck_assert_int_eq(effects.items[0].notice.valid_ms, 50);
    broker_notify(broker, &claim, NOTICE_LOST, "expired");
    ck_assert(effects.items[1].notice.valid_ms == LB_NONE);
    ck_assert_str_eq(effects.items[1].notice.reason, "expired");
    session.closed = true;
    broker_notify(broker, &claim, NOTICE_LOST, "expired");
    ck_assert_uint_eq(effects.count, 2);
}
END_TEST

START_TEST(room_ends_before_the_effects_do)
{
    while (broker_has_room(broker))
        (void)broker_fact(broker, FACT_DEBUG, "x", NULL);
    ck_assert_uint_eq(effects.count, EFFECTS_MAX - EFFECTS_A_TRANSITION + 1);
}
END_TEST

START_TEST(overflowing_effects_abort)
{
    for (int i = 0; i <= EFFECTS_MAX; i++)
        broker_close(broker, 1);
}
END_TEST

START_TEST(attention_is_asked_for_once)
{
    struct lock lock = {.state = LOCK_IDLE};

    broker_mark_dirty(broker, &lock);
    broker_mark_dirty(broker, &lock);
    ck_assert_ptr_eq(TAILQ_FIRST(&broker->dirty), &lock);
    ck_assert_ptr_null(TAILQ_NEXT(&lock, dirty_link));
    ck_assert(broker_next_deadline(broker) == 0);
    TAILQ_INIT(&broker->dirty);
}
END_TEST

START_TEST(ids_rise)
{
    uint64_t first = broker_new_id(broker);

    ck_assert_uint_gt(first, 0);
    ck_assert_uint_gt(broker_new_id(broker), first);
}
END_TEST

static void take_out_of_the_air(struct broker *books, struct lock *lock)
{
    uint64_t op_id = lock->main_op.op_id;

    flight_tree_remove(&books->flights, &lock->main_op);
    lock->main_op.op_id = op_id;
}

// Each makes the books wrong in one way.
START_TEST(wrong_books_abort)
{
    struct world world;

    world_init(&world, 1, false);
    world_play_all(&world, "0 redis> up\n0 A> open\n0 A> 1 acquire a\n1 redis> #1 ok fence=1\n"
                           "2 A> 2 extend a\n3 A> 3 acquire b wait=-1\n"
                           "4 redis> #3 busy foreign forever\n");

    struct lock *held = lock_tree_find(&world.broker->locks, "a");
    struct lock *blocked = lock_tree_find(&world.broker->locks, "b");

    if (_i == 0)
        world.broker->held_count++;
    else if (_i == 1)
        world.broker->locks_count--;
    else if (_i == 2)
        world.broker->owed_count++;
    else if (_i == 3)
        held->owed = false;
    else if (_i == 4)
        alarm_cancel(&held->grant->alarm);
    else if (_i == 5)
        held->main_op.subject = blocked;
    else if (_i == 6)
        take_out_of_the_air(world.broker, held);
    else if (_i == 7)
        blocked->paused = false; // and nothing would ever ask again
    else if (_i == 8)
        held->grant->session = NULL;
    broker_check(world.broker);
}
END_TEST

Suite *book_suite(void)
{
    Suite *suite = suite_create("book");
    TCase *tests = tcase_create("book");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_reply_begins_empty);
    tcase_add_test(tests, a_holder_belongs_to_its_reply);
    tcase_add_test(tests, an_operation_finds_its_flight);
    tcase_add_test(tests, notices_go_to_the_living);
    tcase_add_test(tests, room_ends_before_the_effects_do);
    tcase_add_test_raise_signal(tests, overflowing_effects_abort, SIGABRT);
    tcase_add_test(tests, attention_is_asked_for_once);
    tcase_add_test(tests, ids_rise);
    tcase_add_loop_test_raise_signal(tests, wrong_books_abort, SIGABRT, 0, 9);
    suite_add_tcase(suite, tests);
    return suite;
}
