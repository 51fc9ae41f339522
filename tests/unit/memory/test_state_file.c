// The state file by itself: what it says, what it refuses to be, and what it makes of bad text.
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

#include "daemon/memory/state_file.h"
#include "tests/unit/memory/fault.h"
#include "tests/unit/memory/suites.h"

#define TORN_MS    777777
#define HIGHEST_MS 888888

// A record of another boot, and the length of each.
#define OTHER_BOOT                                                                                 \
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000 0000000000000005000 "                \
    "28892fa4cd210c29\n"
#define RECORD_LENGTH (20 + 36 + 1 + 19 + 1 + 16 + 1)

static char directory[64];
static char path[128];
static char other[128];
static struct state_file file;

static void setup(void)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/lb-state-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/state", directory);
    (void)snprintf(other, sizeof(other), "%s/other", directory);
    file.fd = -1;
}

static void teardown(void)
{
    state_file_close(&file);
    (void)unlink(path);
    (void)unlink(other);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void bytes_write(const char *name, const char *bytes, size_t length)
{
    FILE *stream = fopen(name, "w");

    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(bytes, 1, length, stream), length);
    ck_assert_int_eq(fclose(stream), 0);
}

static void file_write(const char *name, const char *text)
{
    bytes_write(name, text, strlen(text));
}

static const char *file_text(void)
{
    static char text[256];
    FILE *stream = fopen(path, "r");

    ck_assert_ptr_nonnull(stream);
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    (void)fclose(stream);
    return text;
}

static int64_t reopened(void)
{
    state_file_close(&file);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), 0);
    return file.recorded_ms;
}

// The record that says 5000 in this boot.
static void record_make(char ret_record[RECORD_LENGTH + 1])
{
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    ck_assert_uint_eq(strlen(file_text()), RECORD_LENGTH);
    memcpy(ret_record, file_text(), RECORD_LENGTH + 1);
}

// It counts as written just now, and is mended, so that a second start finds the first one's time.
static void assert_torn(const char *bytes, size_t length)
{
    bytes_write(path, bytes, length);
    ck_assert_int_eq(reopened(), TORN_MS);
    ck_assert_uint_eq(strlen(file_text()), RECORD_LENGTH);
    state_file_close(&file);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS + 5000, HIGHEST_MS), 0);
    ck_assert_int_eq(file.recorded_ms, TORN_MS);
}

START_TEST(a_new_file_says_nothing_and_is_private)
{
    struct stat status;

    (void)umask(0);
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_mode & 07777, 0600);
    ck_assert_int_eq(reopened(), 0);
}
END_TEST

START_TEST(it_keeps_the_largest)
{
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    ck_assert_int_eq(state_file_raise(&file, 4000), 0);
    ck_assert_int_eq(reopened(), 5000);
    ck_assert_int_eq(state_file_raise(&file, HIGHEST_MS), 0);
    ck_assert_int_eq(reopened(), HIGHEST_MS);
}
END_TEST

START_TEST(more_than_can_be_is_cut)
{
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, _i == 0 ? HIGHEST_MS + 1 : INT64_MAX), 0);
    ck_assert_int_eq(reopened(), HIGHEST_MS);

    // For good: a later start, which allows more, finds the cut.
    state_file_close(&file);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, INT64_MAX), 0);
    ck_assert_int_eq(file.recorded_ms, HIGHEST_MS);
}
END_TEST

START_TEST(it_is_text_with_the_boot_id)
{
    char boot_id[64];
    FILE *stream = fopen("/proc/sys/kernel/random/boot_id", "r");

    ck_assert_ptr_nonnull(fgets(boot_id, sizeof(boot_id), stream));
    (void)fclose(stream);
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    ck_assert_int_eq(strncmp(file_text(), "lockbroker-memory 1 ", 20), 0);
    ck_assert_int_eq(strncmp(file_text() + 20, boot_id, 36), 0);
    ck_assert_int_eq(strtoll(file_text() + 56, NULL, 10), 5000);
}
END_TEST

START_TEST(another_boot_does_not_count)
{
    file_write(path, OTHER_BOOT);
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 3), 0);
    ck_assert_int_eq(reopened(), 3);
}
END_TEST

// No records, though their checksums are right.
static const char *const foreign_texts[] = {
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000 "
    "000000000000000500x 297d9fa4cdf082f1\n",
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000 "
    "-000000000000005000 4e8d69115bb29530\n",
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000 "
    "+000000000000005000 e2fdbaf9fc9550e2\n",
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000 "
    "9999999999999999999 b97e488621837d49\n",
    "lockbroker-memory 1 00000000-0000-0000-0000-00000000000g "
    "0000000000000005000 ed28ab6074400efe\n",
    "lockbroker-memory 1 00000000-0000-0000-0000-000000000000_"
    "0000000000000005000 42be75f4a3f367f4\n",
    "lockbroker-memory 2 00000000-0000-0000-0000-000000000000 "
    "0000000000000005000 578d9921e600e618\n",
    "lockbroker-Memory 1 00000000-0000-0000-0000-000000000000 "
    "0000000000000005000 6db98ef5a1d356c9\n",
};

START_TEST(a_foreign_file_counts_as_written_just_now)
{
    assert_torn(foreign_texts[_i], strlen(foreign_texts[_i]));
}
END_TEST

START_TEST(a_text_of_any_length_counts_as_written_just_now)
{
    char text[4096];

    memset(text, 'x', sizeof(text));
    assert_torn(text, sizeof(text));
    assert_torn("\n", 1);
    memset(text, 0, sizeof(text));
    assert_torn(text, RECORD_LENGTH);
    assert_torn("", 0);
}
END_TEST

START_TEST(a_record_cut_anywhere_is_torn)
{
    char record[RECORD_LENGTH + 2];

    record_make(record);
    for (size_t length = 0; length < RECORD_LENGTH; length++)
        assert_torn(record, length);
    record[RECORD_LENGTH] = 'x';
    assert_torn(record, RECORD_LENGTH + 1);
}
END_TEST

// Also a mixture of two records, as half a write leaves it.
START_TEST(a_record_changed_anywhere_is_torn)
{
    char record[RECORD_LENGTH + 1];

    record_make(record);
    for (size_t i = 0; i < RECORD_LENGTH; i++) {
        char byte = record[i];

        record[i] = byte == '1' ? '2' : '1';
        assert_torn(record, RECORD_LENGTH);
        record[i] = '\0';
        assert_torn(record, RECORD_LENGTH);
        record[i] = byte;
    }
    bytes_write(path, record, RECORD_LENGTH);
    ck_assert_int_eq(reopened(), 5000);
}
END_TEST

static struct rlimit writes_forbid(void)
{
    struct rlimit before;
    struct rlimit none;

    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    return before;
}

START_TEST(a_torn_file_that_cannot_be_mended_stays_torn)
{
    struct rlimit before;
    int rc;

    file_write(path, "torn");
    before = writes_forbid();
    rc = state_file_open(&file, path, TORN_MS, HIGHEST_MS);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(rc, -EFBIG);
    ck_assert_int_eq(file.fd, -1);
    ck_assert_str_eq(file_text(), "torn");
    ck_assert_int_eq(reopened(), TORN_MS);
}
END_TEST

START_TEST(a_new_file_that_cannot_be_written_is_not_left)
{
    struct rlimit before = writes_forbid();
    int rc = state_file_open(&file, path, TORN_MS, HIGHEST_MS);

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(rc, -EFBIG);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(reopened(), 0);
}
END_TEST

// A descriptor that may only read stands for a disk that fails.
START_TEST(a_failing_write_changes_nothing)
{
    int written;

    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    written = file.fd;
    file.fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(state_file_raise(&file, 6000), -EBADF);
    ck_assert_int_eq(file.recorded_ms, 5000);
    ck_assert_int_eq(close(file.fd), 0);
    file.fd = written;
    ck_assert_int_eq(state_file_raise(&file, 6000), 0);
    ck_assert_int_eq(reopened(), 6000);
}
END_TEST

START_TEST(a_link_is_refused)
{
    file_write(other, "precious");
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), -ELOOP);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(link(other, path), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), -EPERM);
    ck_assert_str_eq(file_text(), "precious");
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), -EINVAL);
    ck_assert_int_eq(file.fd, -1);
}
END_TEST

START_TEST(another_users_file_is_refused)
{
    if (geteuid() != 0) // only root can make one
        return;
    file_write(path, "");
    ck_assert_int_eq(chown(path, 12345, 12345), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), -EPERM);
}
END_TEST

START_TEST(without_a_path_nothing_is_written)
{
    ck_assert_int_eq(state_file_open(&file, NULL, TORN_MS, HIGHEST_MS), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    ck_assert_int_eq(file.recorded_ms, 0);
    state_file_remove(&file);
}
END_TEST

START_TEST(it_can_be_removed)
{
    ck_assert_int_eq(reopened(), 0);
    state_file_remove(&file);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(file.fd, -1);
}
END_TEST

// What the start may not do without: the first look is at the boot id, the second at the file.
static const struct {
    const char *call;
    int error; // 0: half of it
    int first;
    int expected;
} at_open[] = {{"open", EMFILE, 1, -EMFILE}, {"open", EACCES, 2, -EACCES},
               {"pread", EIO, 1, -EIO},      {"pread", 0, 1, -EPROTO},
               {"fstat", EIO, 1, -EIO},      {"fchmod", EPERM, 1, -EPERM},
               {"ftruncate", EIO, 1, -EIO},  {"pwrite", EIO, 1, -EIO},
               {"pwrite", 0, 1, -EIO},       {"pwrite", ENOSPC, 1, -ENOSPC}};

START_TEST(a_start_that_cannot_be_sure_is_refused)
{
    file_write(path, "torn");
    fault_call(at_open[_i].call, at_open[_i].error, at_open[_i].first);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), at_open[_i].expected);
    ck_assert_int_eq(file.fd, -1);
    // Whatever was written by then: the next start believes no less than this one.
    ck_assert_int_eq(reopened(), TORN_MS);
}
END_TEST

START_TEST(what_cannot_be_read_counts_as_written_just_now)
{
    char record[RECORD_LENGTH + 1];

    record_make(record);
    state_file_close(&file);
    fault_call("pread", EIO, 2);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), 0);
    ck_assert_int_eq(file.recorded_ms, TORN_MS);
}
END_TEST

static const char *const interrupted[] = {"pread", "pwrite"};

START_TEST(an_interrupted_call_is_made_again)
{
    ck_assert_int_eq(reopened(), 0);
    state_file_close(&file);
    fault_call(interrupted[_i], EINTR, 1);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS, HIGHEST_MS), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    ck_assert_int_eq(reopened(), 5000);
}
END_TEST

START_TEST(half_a_record_is_none)
{
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 5000), 0);
    fault_call("pwrite", 0, 1);
    ck_assert_int_eq(state_file_raise(&file, 6000), -EIO);
    ck_assert_int_eq(file.recorded_ms, 5000);
    ck_assert_int_eq(state_file_raise(&file, 6000), 0); // once more, and it is whole
    ck_assert_int_eq(reopened(), 6000);
}
END_TEST

Suite *state_file_suite(void)
{
    Suite *suite = suite_create("state_file");
    TCase *tcase = tcase_create("state_file");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_new_file_says_nothing_and_is_private);
    tcase_add_test(tcase, it_keeps_the_largest);
    tcase_add_test(tcase, it_is_text_with_the_boot_id);
    tcase_add_test(tcase, another_boot_does_not_count);
    tcase_add_loop_test(tcase, more_than_can_be_is_cut, 0, 2);
    tcase_add_loop_test(tcase, a_foreign_file_counts_as_written_just_now, 0,
                        LB_ARRAY_LENGTH(foreign_texts));
    tcase_add_test(tcase, a_text_of_any_length_counts_as_written_just_now);
    tcase_add_test(tcase, a_record_cut_anywhere_is_torn);
    tcase_add_test(tcase, a_record_changed_anywhere_is_torn);
    tcase_add_test(tcase, a_torn_file_that_cannot_be_mended_stays_torn);
    tcase_add_test(tcase, a_new_file_that_cannot_be_written_is_not_left);
    tcase_add_test(tcase, a_failing_write_changes_nothing);
    tcase_add_loop_test(tcase, a_start_that_cannot_be_sure_is_refused, 0, LB_ARRAY_LENGTH(at_open));
    tcase_add_test(tcase, what_cannot_be_read_counts_as_written_just_now);
    tcase_add_loop_test(tcase, an_interrupted_call_is_made_again, 0, LB_ARRAY_LENGTH(interrupted));
    tcase_add_test(tcase, half_a_record_is_none);
    tcase_add_test(tcase, a_link_is_refused);
    tcase_add_test(tcase, what_is_no_file_is_refused);
    tcase_add_test(tcase, another_users_file_is_refused);
    tcase_add_test(tcase, without_a_path_nothing_is_written);
    tcase_add_test(tcase, it_can_be_removed);
    suite_add_tcase(suite, tcase);
    return suite;
}
