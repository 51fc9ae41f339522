// The table under a clock that the test sets, and its state file over crashes.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/memory/memory_backend.h"
#include "tests/unit/memory/alloc.h"
#include "tests/unit/memory/suites.h"

#define TTL_MAX_MS 30000

static struct memory_backend *backend;
static int64_t now_ms;
static int64_t wall_us;
static int64_t blocked_until_ms;
static uint64_t next_op_id;
static struct event posted;
static struct event before_posted;
static int posted_count;
static char directory[64];
static char state_path[128];
static int64_t written_at_post_ms; // what the state file says when an outcome comes

// No assertion in these two: it would take the memory that is to fail for the backend.
static int64_t clock_now(void *context)
{
    return context == &posted ? now_ms : LB_NONE;
}

static int64_t clock_wall(void *context)
{
    return context == &posted ? wall_us : LB_NONE;
}

static int64_t state_read(void)
{
    char text[128] = "";
    int fd = open(state_path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return LB_NONE;
    ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 56);
    close(fd);
    return strtoll(text + 56, NULL, 10);
}

static void take_post(void *context, const struct event *event)
{
    ck_assert_ptr_eq(context, &posted);
    before_posted = posted;
    posted = *event;
    posted_count++;
    written_at_post_ms = state_read();
}

static int backend_make(const char *path)
{
    struct memory_backend_options options = {
        .state_path = path,
        .ttl_max_ms = TTL_MAX_MS,
        .now_ms = clock_now,
        .wall_us = clock_wall,
        .post = take_post,
        .context = &posted,
    };

    return memory_backend_new(&options, &blocked_until_ms, &backend);
}

static void setup(void)
{
    now_ms = 1000000;
    wall_us = 5000000000;
    next_op_id = 1;
    posted_count = 0;
    (void)snprintf(directory, sizeof(directory), "/tmp/lb-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(state_path, sizeof(state_path), "%s/state", directory);
    ck_assert_int_eq(backend_make(NULL), 0);
    ck_assert_int_eq(blocked_until_ms, 0);
}

static void teardown(void)
{
    memory_backend_free(backend);
    (void)unlink(state_path);
    ck_assert_int_eq(rmdir(directory), 0);
}

static const struct backend_outcome *submit(struct backend_op op)
{
    int before = posted_count;

    op.op_id = next_op_id++;
    memory_backend_submit(backend, &op);
    ck_assert_int_eq(posted_count, before + 1);
    ck_assert_int_eq(posted.kind, EVENT_BACKEND_OUTCOME);
    ck_assert_uint_eq(posted.outcome.op_id, op.op_id);
    ck_assert_int_eq(posted.outcome.sent_ms, now_ms);
    return &posted.outcome;
}

static const struct backend_outcome *acquire(const char *key, uint64_t serial, int64_t ttl_ms)
{
    return submit((struct backend_op){
        .kind = BACKEND_ACQUIRE, .key = key, .serial = serial, .ttl_ms = ttl_ms});
}

static const struct backend_outcome *acquire_above(const char *key, uint64_t serial, int64_t floor)
{
    return submit((struct backend_op){.kind = BACKEND_ACQUIRE,
                                      .key = key,
                                      .serial = serial,
                                      .ttl_ms = 1000,
                                      .fence_floor = floor});
}

static enum backend_result renew(const char *key, uint64_t serial, int64_t ttl_ms)
{
    return submit((struct backend_op){
                      .kind = BACKEND_RENEW, .key = key, .serial = serial, .ttl_ms = ttl_ms})
        ->result;
}

static enum backend_result release(const char *key, uint64_t serial)
{
    return submit((struct backend_op){.kind = BACKEND_RELEASE, .key = key, .serial = serial})
        ->result;
}

static const struct backend_outcome *look(enum backend_op_kind kind, const char *key)
{
    return submit((struct backend_op){.kind = kind, .key = key});
}

// A query answers: held for so long yet, or free at LB_NONE.
static void assert_left(const char *key, int64_t left_ms)
{
    const struct backend_outcome *outcome = look(BACKEND_QUERY, key);

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, left_ms == LB_NONE ? HOLDER_NONE : HOLDER_LOCAL);
    ck_assert_int_eq(outcome->holder.ttl_left_ms, left_ms);
    ck_assert(!outcome->holder.without_expiry);
}

START_TEST(open_posts_up)
{
    memory_backend_open(backend);
    ck_assert_int_eq(posted_count, 2);
    ck_assert_int_eq(before_posted.kind, EVENT_BACKEND_UP);
    ck_assert_ptr_null(before_posted.facts.role);
    ck_assert(!before_posted.facts.may_evict);
    ck_assert_int_eq(posted.kind, EVENT_CHANNEL_UP);
}
END_TEST

START_TEST(acquire_takes_a_free_key)
{
    ck_assert_int_eq(acquire("a", 1, 3000)->result, RESULT_OK);
    assert_left("a", 3000);
    assert_left("b", LB_NONE);
    now_ms += 1000;
    assert_left("a", 2000);
}
END_TEST

START_TEST(acquire_tells_who_holds_the_key)
{
    (void)acquire("a", 1, 3000);
    now_ms += 1000;

    const struct backend_outcome *outcome = acquire("a", 2, 9000);

    ck_assert_int_eq(outcome->result, RESULT_BUSY);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_LOCAL);
    ck_assert_int_eq(outcome->holder.ttl_left_ms, 2000);
    ck_assert_int_eq(outcome->fence, LB_NONE);
    ck_assert_int_eq(outcome->ends_in_ms, LB_NONE);
    ck_assert_ptr_null(outcome->holder.host);
    ck_assert_int_eq(outcome->holder.pid, LB_NONE);
    ck_assert_int_eq(outcome->holder.uid, LB_NONE);
    ck_assert_int_eq(outcome->holder.fence, LB_NONE);
    ck_assert_int_eq(outcome->holder.held_ms, LB_NONE);
    assert_left("a", 2000);
}
END_TEST

START_TEST(acquire_again_refreshes_and_never_lowers)
{
    int64_t fence = acquire("a", 1, 3000)->fence;

    now_ms += 1000;
    ck_assert_int_eq(acquire("a", 1, 1000)->result, RESULT_OK);
    ck_assert_int_gt(posted.outcome.fence, fence);
    assert_left("a", 2000);
    ck_assert_int_eq(acquire("a", 1, 5000)->result, RESULT_OK);
    assert_left("a", 5000);
}
END_TEST

START_TEST(keys_expire_in_their_millisecond)
{
    (void)acquire("a", 1, 3000);
    now_ms += 2999;
    ck_assert_int_eq(acquire("a", 2, 3000)->result, RESULT_BUSY);
    now_ms += 1;
    ck_assert_int_eq(renew("a", 1, 3000), RESULT_GONE);
    ck_assert_int_eq(acquire("a", 2, 3000)->result, RESULT_OK);
    ck_assert_int_eq(renew("a", 1, 3000), RESULT_STOLEN);
    ck_assert_int_eq(release("a", 1), RESULT_STOLEN);
    assert_left("a", 3000);
}
END_TEST

START_TEST(renew_pushes_out_and_never_nearer)
{
    (void)acquire("a", 1, 3000);
    now_ms += 1000;
    ck_assert_int_eq(renew("a", 1, 1500), RESULT_OK);
    assert_left("a", 2000);
    ck_assert_int_eq(renew("a", 1, 4000), RESULT_OK);
    assert_left("a", 4000);
    ck_assert_int_eq(renew("b", 1, 4000), RESULT_GONE);
}
END_TEST

START_TEST(release_deletes_only_its_own)
{
    (void)acquire("a", 1, 3000);
    ck_assert_int_eq(release("a", 2), RESULT_STOLEN);
    assert_left("a", 3000);
    ck_assert_int_eq(release("a", 1), RESULT_OK);
    ck_assert_int_eq(release("a", 1), RESULT_GONE);
    assert_left("a", LB_NONE);
}
END_TEST

START_TEST(break_deletes_whatever_there_is)
{
    (void)acquire("a", 1, 3000);

    const struct backend_outcome *outcome = look(BACKEND_BREAK, "a");

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_LOCAL);
    ck_assert_int_eq(look(BACKEND_BREAK, "a")->holder.kind, HOLDER_NONE);
    ck_assert_int_eq(renew("a", 1, 3000), RESULT_GONE);
}
END_TEST

START_TEST(fences_follow_the_wall_clock_and_never_go_back)
{
    ck_assert_int_eq(acquire("a", 1, 1000)->fence, 5000000000);
    ck_assert_int_eq(acquire("b", 2, 1000)->fence, 5000000001);
    wall_us -= 1000000;
    ck_assert_int_eq(acquire("c", 3, 1000)->fence, 5000000002);
    wall_us = 6000000000;
    ck_assert_int_eq(acquire("d", 4, 1000)->fence, 6000000000);
    ck_assert_int_eq(acquire_above("e", 5, 7000000000)->fence, 7000000001);
    ck_assert_int_eq(acquire_above("f", 6, 7000000000)->fence, 7000000002);
}
END_TEST

// Of a block the first is told; whatever is granted afterwards lies above all of it.
START_TEST(fences_are_reserved_in_blocks)
{
    memory_backend_submit(backend, &(struct backend_op){.kind = BACKEND_ACQUIRE,
                                                        .op_id = 1,
                                                        .key = "a",
                                                        .serial = 1,
                                                        .ttl_ms = 1000,
                                                        .fences = 8});
    ck_assert_int_eq(posted.outcome.fence, 5000000000);
    ck_assert_int_eq(posted.outcome.fences, 8);
    ck_assert_int_eq(acquire("b", 2, 1000)->fence, 5000000008);
    ck_assert_int_eq(posted.outcome.fences, 1);
    ck_assert_int_eq(renew("a", 1, 1000), RESULT_OK);
    ck_assert_int_eq(posted.outcome.fences, 0);
    memory_backend_submit(backend, &(struct backend_op){.kind = BACKEND_RENEW,
                                                        .op_id = 2,
                                                        .key = "a",
                                                        .serial = 1,
                                                        .ttl_ms = 1000,
                                                        .fences = 3});
    ck_assert_int_eq(posted.outcome.fence, 5000000009);
    ck_assert_int_eq(posted.outcome.fences, 3);
    ck_assert_int_eq(acquire("c", 3, 1000)->fence, 5000000012);
}
END_TEST

START_TEST(no_fence_is_left)
{
    ck_assert_int_eq(acquire_above("a", 1, LB_INTEGER_MAX - 1)->fence, LB_INTEGER_MAX);
    ck_assert_int_eq(acquire("b", 2, 1000)->result, RESULT_REFUSED);
    assert_left("b", LB_NONE);
}
END_TEST

START_TEST(an_acquire_without_memory_is_refused)
{
    struct backend_op op = {.kind = BACKEND_ACQUIRE, .key = "a", .serial = 1, .ttl_ms = 1000};

    alloc_fail_next();
    memory_backend_submit(backend, &op);
    ck_assert(alloc_has_failed());
    ck_assert_int_eq(posted.outcome.result, RESULT_REFUSED);
    assert_left("a", LB_NONE);
    ck_assert_int_eq(acquire("a", 1, 1000)->result, RESULT_OK);
}
END_TEST

START_TEST(without_memory_there_is_no_backend)
{
    struct memory_backend *before = backend;
    int rc;

    alloc_fail_next();
    rc = backend_make(state_path);
    ck_assert(alloc_has_failed());
    ck_assert_int_eq(rc, -ENOMEM);
    ck_assert_ptr_eq(backend, before);
    ck_assert_int_ne(access(state_path, F_OK), 0);
}
END_TEST

// The caller's path may be gone when the file is removed.
START_TEST(the_path_is_copied)
{
    char path[sizeof(state_path)];

    memcpy(path, state_path, sizeof(path));
    memory_backend_free(backend);
    ck_assert_int_eq(backend_make(path), 0);
    ck_assert_int_eq(access(state_path, F_OK), 0);
    memset(path, 'x', sizeof(path) - 1);
    memory_backend_free(backend);
    backend = NULL;
    ck_assert_int_ne(access(state_path, F_OK), 0);
}
END_TEST

// Every key is found in a table of many, and all of it expires.
START_TEST(many_keys)
{
    char key[16];

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i * 7919 % 5000);
        ck_assert_int_eq(acquire(key, (uint64_t)i + 1, 1000 + i)->result, RESULT_OK);
    }
    now_ms += 3500;
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i * 7919 % 5000);
        ck_assert_int_eq(release(key, (uint64_t)i + 1), i > 2500 ? RESULT_OK : RESULT_GONE);
    }
}
END_TEST

// What a crash leaves: the file as it is, and nothing of the table.
static void crash_and_start(void)
{
    char saved[128];
    int fd = open(state_path, O_RDONLY);
    ssize_t length = read(fd, saved, sizeof(saved));

    ck_assert_int_gt(length, 0);
    close(fd);
    memory_backend_free(backend);
    fd = open(state_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, saved, (size_t)length), length);
    close(fd);
    ck_assert_int_eq(backend_make(state_path), 0);
}

static void start_with_state(void)
{
    memory_backend_free(backend);
    ck_assert_int_eq(backend_make(state_path), 0);
    ck_assert_int_eq(blocked_until_ms, 0);
}

START_TEST(after_a_crash_nothing_is_granted_before_the_last_expiry)
{
    start_with_state();
    (void)acquire("a", 1, 3000);
    (void)acquire("b", 2, 8000);
    (void)acquire("c", 3, 1000);
    now_ms += 1000;
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + 7000);

    const struct backend_outcome *outcome = acquire("d", 1, 1000);

    ck_assert_int_eq(outcome->result, RESULT_QUARANTINED);
    ck_assert_int_eq(outcome->ends_in_ms, 7000);
    assert_left("d", LB_NONE);
    now_ms += 6999;
    ck_assert_int_eq(acquire("d", 1, 1000)->ends_in_ms, 1);
    now_ms += 1;
    ck_assert_int_eq(acquire("d", 1, 1000)->result, RESULT_OK);
}
END_TEST

START_TEST(an_expiry_is_written_before_it_is_told)
{
    start_with_state();
    (void)acquire("a", 1, 3000);
    ck_assert_int_eq(written_at_post_ms, now_ms + 3000);
    ck_assert_int_eq(renew("a", 1, 5000), RESULT_OK);
    ck_assert_int_eq(written_at_post_ms, now_ms + 5000);
    (void)acquire("b", 2, 2000);
    ck_assert_int_eq(written_at_post_ms, now_ms + 5000);
    (void)acquire("b", 2, 9000);
    ck_assert_int_eq(written_at_post_ms, now_ms + 9000);
}
END_TEST

START_TEST(while_blocked_the_rest_is_answered)
{
    start_with_state();
    (void)acquire("a", 1, 3000);
    crash_and_start();
    ck_assert_int_eq(renew("a", 1, 9000), RESULT_GONE);
    ck_assert_int_eq(release("a", 1), RESULT_GONE);
    ck_assert_int_eq(look(BACKEND_BREAK, "a")->holder.kind, HOLDER_NONE);
    ck_assert_int_eq(acquire("a", 1, 1000)->ends_in_ms, 3000);
}
END_TEST

START_TEST(a_file_that_says_too_much_blocks_no_longer_than_a_lock_can_last)
{
    start_with_state();
    (void)acquire("a", 1, 1000000000);
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + 3636000);
    now_ms = blocked_until_ms - 1;
    ck_assert_int_eq(acquire("a", 1, 1000)->ends_in_ms, 1);
    now_ms++;
    ck_assert_int_eq(acquire("a", 1, 1000)->result, RESULT_OK);
}
END_TEST

START_TEST(a_lock_longer_than_the_new_ttl_max_blocks_for_all_of_its_time)
{
    start_with_state();
    (void)acquire("a", 1, 20 * TTL_MAX_MS);
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + 20 * TTL_MAX_MS);
}
END_TEST

START_TEST(a_file_that_is_not_understood_blocks_for_the_longest_lock)
{
    int fd = open(state_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (_i == 1) // else it is empty
        ck_assert_int_eq(write(fd, "what", 4), 4);
    close(fd);
    memory_backend_free(backend);
    ck_assert_int_eq(backend_make(state_path), 0);
    ck_assert_int_eq(blocked_until_ms, now_ms + TTL_MAX_MS);
    now_ms += 1000;
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + TTL_MAX_MS - 1000);
}
END_TEST

START_TEST(a_renewal_counts_for_a_crash_too)
{
    start_with_state();
    (void)acquire("a", 1, 3000);
    now_ms += 2000;
    ck_assert_int_eq(renew("a", 1, 3000), RESULT_OK);
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + 3000);
}
END_TEST

START_TEST(a_second_crash_does_not_put_the_end_off)
{
    start_with_state();
    (void)acquire("a", 1, 5000);
    crash_and_start();
    now_ms += 2000;
    crash_and_start();
    ck_assert_int_eq(blocked_until_ms, now_ms + 3000);
}
END_TEST

START_TEST(a_clean_end_removes_the_file)
{
    start_with_state();
    (void)acquire("a", 1, 5000);
    ck_assert_int_eq(access(state_path, F_OK), 0);
    (void)release("a", 1);
    start_with_state();
    ck_assert_int_eq(acquire("a", 2, 5000)->result, RESULT_OK);
    (void)release("a", 2);
    memory_backend_free(backend);
    backend = NULL;
    ck_assert_int_ne(access(state_path, F_OK), 0);
}
END_TEST

START_TEST(an_end_with_a_live_key_leaves_the_file)
{
    start_with_state();
    (void)acquire("a", 1, 5000);
    memory_backend_free(backend);
    ck_assert_int_eq(access(state_path, F_OK), 0);
    ck_assert_int_eq(backend_make(state_path), 0);
    ck_assert_int_eq(blocked_until_ms, now_ms + 5000);

    // An end in the midst of the waiting leaves it too.
    memory_backend_free(backend);
    ck_assert_int_eq(backend_make(state_path), 0);
    ck_assert_int_eq(blocked_until_ms, now_ms + 5000);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_refuses_grants)
{
    struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    struct rlimit before;

    start_with_state();
    (void)acquire("a", 1, 3000);
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);

    enum backend_result grown = acquire("b", 2, 4000)->result;
    enum backend_result renewed = renew("a", 1, 5000);
    enum backend_result within = acquire("c", 3, 2000)->result;

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(grown, RESULT_REFUSED);
    ck_assert_int_eq(renewed, RESULT_REFUSED);
    ck_assert_int_eq(within, RESULT_OK); // the file says enough for that already
    assert_left("a", 3000);
    assert_left("b", LB_NONE);
    ck_assert_int_eq(renew("a", 1, 5000), RESULT_OK);
}
END_TEST

START_TEST(no_directory_no_backend)
{
    struct memory_backend *before = backend;

    ck_assert_int_eq(backend_make("/nonexistent/state"), -ENOENT);
    ck_assert_ptr_eq(backend, before);
}
END_TEST

Suite *memory_backend_suite(void)
{
    Suite *suite = suite_create("memory_backend");
    TCase *tcase = tcase_create("memory_backend");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, open_posts_up);
    tcase_add_test(tcase, acquire_takes_a_free_key);
    tcase_add_test(tcase, acquire_tells_who_holds_the_key);
    tcase_add_test(tcase, acquire_again_refreshes_and_never_lowers);
    tcase_add_test(tcase, keys_expire_in_their_millisecond);
    tcase_add_test(tcase, renew_pushes_out_and_never_nearer);
    tcase_add_test(tcase, release_deletes_only_its_own);
    tcase_add_test(tcase, break_deletes_whatever_there_is);
    tcase_add_test(tcase, fences_follow_the_wall_clock_and_never_go_back);
    tcase_add_test(tcase, fences_are_reserved_in_blocks);
    tcase_add_test(tcase, no_fence_is_left);
    tcase_add_test(tcase, an_acquire_without_memory_is_refused);
    tcase_add_test(tcase, without_memory_there_is_no_backend);
    tcase_add_test(tcase, the_path_is_copied);
    tcase_add_test(tcase, many_keys);
    tcase_add_test(tcase, after_a_crash_nothing_is_granted_before_the_last_expiry);
    tcase_add_test(tcase, an_expiry_is_written_before_it_is_told);
    tcase_add_test(tcase, while_blocked_the_rest_is_answered);
    tcase_add_test(tcase, a_file_that_says_too_much_blocks_no_longer_than_a_lock_can_last);
    tcase_add_test(tcase, a_lock_longer_than_the_new_ttl_max_blocks_for_all_of_its_time);
    tcase_add_loop_test(tcase, a_file_that_is_not_understood_blocks_for_the_longest_lock, 0, 2);
    tcase_add_test(tcase, a_renewal_counts_for_a_crash_too);
    tcase_add_test(tcase, a_second_crash_does_not_put_the_end_off);
    tcase_add_test(tcase, a_clean_end_removes_the_file);
    tcase_add_test(tcase, an_end_with_a_live_key_leaves_the_file);
    tcase_add_test(tcase, a_file_that_cannot_be_written_refuses_grants);
    tcase_add_test(tcase, no_directory_no_backend);
    suite_add_tcase(suite, tcase);
    return suite;
}
