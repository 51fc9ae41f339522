// The queue of events: order, copies, growth, and memory that runs out.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "daemon/io/inbox.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/suites.h"

static struct inbox inbox;

static void setup(void)
{
    ck_assert_int_eq(inbox_init(&inbox), 0);
}

static void teardown(void)
{
    inbox_deinit(&inbox);
}

static void push(uint64_t op_id)
{
    struct event event = {.kind = EVENT_BACKEND_OUTCOME, .outcome.op_id = op_id};

    ck_assert_int_eq(inbox_reserve(&inbox, 1), 0);
    inbox_push(&inbox, &event);
}

static uint64_t pop(void)
{
    struct inbox_entry entry;

    return inbox_pop(&inbox, &entry) ? entry.event.outcome.op_id : 0;
}

START_TEST(first_in_first_out)
{
    uint64_t taken = 0;

    // Rounds of unequal size take the ring's ends to every place, and make it grow.
    for (uint64_t id = 1; id <= 20000; id++) {
        push(id);
        if (id % 3 == 0)
            ck_assert_uint_eq(pop(), ++taken);
    }
    while (taken < 20000)
        ck_assert_uint_eq(pop(), ++taken);
    ck_assert_uint_eq(pop(), 0);
    ck_assert_ptr_null(inbox_last(&inbox));
}
END_TEST

START_TEST(what_is_returned_comes_first)
{
    struct inbox_entry entry;

    push(1);
    push(2);
    ck_assert(inbox_pop(&inbox, &entry));
    push(3);
    inbox_return(&inbox, &entry);
    ck_assert_uint_eq(inbox_last(&inbox)->outcome.op_id, 3);
    for (uint64_t id = 1; id <= 3; id++)
        ck_assert_uint_eq(pop(), id);
}
END_TEST

START_TEST(texts_are_copied)
{
    char role[] = "master";
    char host[] = "host-a";
    struct event up = {.kind = EVENT_BACKEND_UP, .facts = {.role = role, .policy = "noeviction"}};
    struct event busy = {.kind = EVENT_BACKEND_OUTCOME, .outcome.holder.host = host};
    struct inbox_entry entry;

    inbox_push(&inbox, &up);
    inbox_push(&inbox, &busy);
    memset(role, 'x', sizeof(role) - 1);
    memset(host, 'x', sizeof(host) - 1);
    ck_assert(inbox_pop(&inbox, &entry));
    ck_assert_str_eq(entry.event.facts.role, "master");
    ck_assert_ptr_null(entry.event.facts.version);
    ck_assert_str_eq(entry.event.facts.policy, "noeviction");
    ck_assert(inbox_pop(&inbox, &entry));
    ck_assert_str_eq(entry.event.outcome.holder.host, "host-a");
}
END_TEST

START_TEST(long_texts_are_cut)
{
    char host[200];
    struct event busy = {.kind = EVENT_BACKEND_OUTCOME, .outcome.holder.host = host};
    struct inbox_entry entry;

    memset(host, 'h', sizeof(host));
    host[sizeof(host) - 1] = '\0';
    inbox_push(&inbox, &busy);
    ck_assert(inbox_pop(&inbox, &entry));
    ck_assert_uint_eq(strlen(entry.event.outcome.holder.host), INBOX_TEXT_MAX);
}
END_TEST

START_TEST(memory_is_asked_for_before_it_is_needed)
{
    push(1);
    fault_memory_fail(1, true);

    int soon = inbox_reserve(&inbox, inbox.capacity - 1);
    int over = inbox_reserve(&inbox, inbox.capacity);

    fault_memory_fail(0, false);
    ck_assert_int_eq(soon, 0);
    ck_assert_int_eq(over, -ENOMEM);
    ck_assert_uint_eq(pop(), 1);

    size_t capacity = inbox.capacity;

    ck_assert_int_eq(inbox_reserve(&inbox, capacity / 2 + 1), 0);
    ck_assert_uint_gt(inbox.capacity, capacity);
}
END_TEST

START_TEST(without_memory_there_is_no_queue)
{
    struct inbox other;

    fault_memory_fail(1, false);
    ck_assert_int_eq(inbox_init(&other), -ENOMEM);
}
END_TEST

Suite *inbox_suite(void)
{
    Suite *suite = suite_create("inbox");
    TCase *tcase = tcase_create("inbox");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, first_in_first_out);
    tcase_add_test(tcase, what_is_returned_comes_first);
    tcase_add_test(tcase, texts_are_copied);
    tcase_add_test(tcase, long_texts_are_cut);
    tcase_add_test(tcase, memory_is_asked_for_before_it_is_needed);
    tcase_add_test(tcase, without_memory_there_is_no_queue);
    suite_add_tcase(suite, tcase);
    return suite;
}
