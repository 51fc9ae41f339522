// The state file by itself: what it says, what it refuses to be, and what it makes of bad text.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/memory/state_file.h"
#include "tests/unit/memory/suites.h"

#define TORN_MS 777777

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

static void file_write(const char *name, const char *text)
{
    FILE *stream = fopen(name, "w");

    ck_assert_ptr_nonnull(stream);
    ck_assert_int_ge(fputs(text, stream), 0);
    ck_assert_int_eq(fclose(stream), 0);
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
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS), 0);
    return file.recorded_ms;
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
    ck_assert_int_eq(state_file_raise(&file, INT64_MAX), 0);
    ck_assert_int_eq(reopened(), INT64_MAX);
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
    ck_assert_int_eq(strncmp(file_text(), boot_id, 36), 0);
    ck_assert_int_eq(strtoll(file_text() + 36, NULL, 10), 5000);
}
END_TEST

START_TEST(another_boot_does_not_count)
{
    file_write(path, "00000000-0000-0000-0000-000000000000 0000000000000005000\n");
    ck_assert_int_eq(reopened(), 0);
    ck_assert_int_eq(state_file_raise(&file, 3), 0);
    ck_assert_int_eq(reopened(), 3);
}
END_TEST

static const char *const torn_texts[] = {
    "x",
    "\n",
    "00000000-0000-0000-0000-000000000000",
    "00000000-0000-0000-0000-000000000000 0000000000000005000",
    "00000000-0000-0000-0000-000000000000 0000000000000005000\nx",
    "00000000-0000-0000-0000-000000000000 000000000000000500x\n",
    "00000000-0000-0000-0000-000000000000 -000000000000005000\n",
    "00000000-0000-0000-0000-000000000000 9999999999999999999\n",
    "00000000-0000-0000-0000-00000000000g 0000000000000005000\n",
    "00000000-0000-0000-0000-000000000000_0000000000000005000\n",
};

START_TEST(a_torn_file_counts_as_written_just_now)
{
    file_write(path, torn_texts[_i]);
    ck_assert_int_eq(reopened(), TORN_MS);

    // It is mended, so a second start finds the first one's time.
    state_file_close(&file);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS + 5000), 0);
    ck_assert_int_eq(file.recorded_ms, TORN_MS);
}
END_TEST

START_TEST(a_link_is_refused)
{
    file_write(other, "precious");
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS), -ELOOP);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(link(other, path), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS), -EPERM);
    ck_assert_str_eq(file_text(), "precious");
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS), -EINVAL);
    ck_assert_int_eq(file.fd, -1);
}
END_TEST

START_TEST(another_users_file_is_refused)
{
    if (geteuid() != 0) // only root can make one
        return;
    file_write(path, "");
    ck_assert_int_eq(chown(path, 12345, 12345), 0);
    ck_assert_int_eq(state_file_open(&file, path, TORN_MS), -EPERM);
}
END_TEST

START_TEST(without_a_path_nothing_is_written)
{
    ck_assert_int_eq(state_file_open(&file, NULL, TORN_MS), 0);
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

Suite *state_file_suite(void)
{
    Suite *suite = suite_create("state_file");
    TCase *tcase = tcase_create("state_file");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_new_file_says_nothing_and_is_private);
    tcase_add_test(tcase, it_keeps_the_largest);
    tcase_add_test(tcase, it_is_text_with_the_boot_id);
    tcase_add_test(tcase, another_boot_does_not_count);
    tcase_add_loop_test(tcase, a_torn_file_counts_as_written_just_now, 0,
                        LB_ARRAY_LENGTH(torn_texts));
    tcase_add_test(tcase, a_link_is_refused);
    tcase_add_test(tcase, what_is_no_file_is_refused);
    tcase_add_test(tcase, another_users_file_is_refused);
    tcase_add_test(tcase, without_a_path_nothing_is_written);
    tcase_add_test(tcase, it_can_be_removed);
    suite_add_tcase(suite, tcase);
    return suite;
}
