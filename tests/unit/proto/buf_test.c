// The growable buffer.
#include "proto/buf.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

static void assert_holds(const struct buf *buf, const char *expected)
{
    ck_assert_uint_eq(buf_length(buf), strlen(expected));
    if (*expected)
        ck_assert_mem_eq(buf_bytes(buf), expected, strlen(expected));
    else
        ck_assert_ptr_null(buf_bytes(buf));
}

START_TEST(takes_no_memory_before_the_first_append)
{
    struct buf buf;

    buf_init(&buf, 100);
    ck_assert_ptr_null(buf.storage);
    ck_assert_int_eq(buf_append(&buf, "", 0), 0);
    ck_assert_ptr_null(buf.storage);
    assert_holds(&buf, "");
    buf_clear(&buf);
}
END_TEST

START_TEST(appends_at_the_back_and_consumes_from_the_front)
{
    struct buf buf;

    buf_init(&buf, 100);
    ck_assert_int_eq(buf_append(&buf, "hello", 5), 0);
    ck_assert_int_eq(buf_append(&buf, " world", 6), 0);
    assert_holds(&buf, "hello world");
    buf_consume(&buf, 6);
    assert_holds(&buf, "world");
    ck_assert_int_eq(buf_append(&buf, "!", 1), 0);
    assert_holds(&buf, "world!");
    buf_truncate(&buf, 2);
    assert_holds(&buf, "wo");
    buf_consume(&buf, 1000);
    assert_holds(&buf, "");
    buf_clear(&buf);
    ck_assert_ptr_null(buf.storage);
    ck_assert_int_eq(buf_append(&buf, "again", 5), 0);
    assert_holds(&buf, "again");
    buf_clear(&buf);
}
END_TEST

START_TEST(never_holds_more_than_its_cap)
{
    struct buf buf;
    char *space = NULL;

    buf_init(&buf, 10);
    ck_assert_int_eq(buf_append(&buf, "12345678", 8), 0);
    ck_assert_int_eq(buf_append(&buf, "abc", 3), -ENOBUFS);
    ck_assert_int_eq(buf_reserve(&buf, SIZE_MAX, &space), -ENOBUFS);
    ck_assert_ptr_null(space);
    assert_holds(&buf, "12345678");
    ck_assert_int_eq(buf_append(&buf, "ab", 2), 0);
    ck_assert_uint_le(buf.capacity, 10);
    buf_consume(&buf, 4);
    ck_assert_int_eq(buf_append(&buf, "cdef", 4), 0);
    assert_holds(&buf, "5678abcdef");
    ck_assert_uint_le(buf.capacity, 10);
    buf_clear(&buf);
}
END_TEST

START_TEST(a_long_run_of_appends_and_consumes_keeps_its_order_and_size)
{
    struct buf buf;
    unsigned char in = 0;
    unsigned char out = 0;

    buf_init(&buf, 100000);
    for (int i = 0; i < 100000; i++) {
        for (int k = 0; k < 1 + i % 3; k++, in++)
            ck_assert_int_eq(buf_append(&buf, &in, 1), 0);
        size_t take = buf_length(&buf) > 40 ? buf_length(&buf) - 20 : 1;
        for (size_t k = 0; k < take; k++, out++)
            ck_assert_uint_eq((unsigned char)buf_bytes(&buf)[k], out);
        buf_consume(&buf, take);
    }
    ck_assert_uint_le(buf.capacity, 1024);
    buf_clear(&buf);
}
END_TEST

START_TEST(reserve_gives_room_that_commit_adds)
{
    struct buf buf;
    char *space = NULL;

    buf_init(&buf, 1000);
    ck_assert_int_eq(buf_append(&buf, "ab", 2), 0);
    ck_assert_int_eq(buf_reserve(&buf, 600, &space), 0);
    memset(space, 'x', 600);
    buf_commit(&buf, 3);
    assert_holds(&buf, "abxxx");
    buf_clear(&buf);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
    struct buf buf;
    static const char block[300];
    int r;

    buf_init(&buf, 1000);
    alloc_fail_after(0);
    r = buf_append(&buf, "ab", 2);
    ck_assert_int_eq(alloc_restore(), 1);
    ck_assert_int_eq(r, -ENOMEM);
    assert_holds(&buf, "");
    ck_assert_int_eq(buf_append(&buf, "ab", 2), 0);
    alloc_fail_after(0);
    r = buf_append(&buf, block, sizeof(block));
    ck_assert_int_eq(alloc_restore(), 1);
    ck_assert_int_eq(r, -ENOMEM);
    assert_holds(&buf, "ab");
    buf_clear(&buf);
}
END_TEST

Suite *buf_suite(void)
{
    Suite *suite = suite_create("buf");
    TCase *tcase = tcase_create("buf");

    tcase_add_test(tcase, takes_no_memory_before_the_first_append);
    tcase_add_test(tcase, appends_at_the_back_and_consumes_from_the_front);
    tcase_add_test(tcase, never_holds_more_than_its_cap);
    tcase_add_test(tcase, a_long_run_of_appends_and_consumes_keeps_its_order_and_size);
    tcase_add_test(tcase, reserve_gives_room_that_commit_adds);
    tcase_add_test(tcase, without_memory_nothing_changes);
    suite_add_tcase(suite, tcase);
    return suite;
}
