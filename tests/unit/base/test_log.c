// Log lines as they arrive at the other end of standard error, which is a pipe here.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "proto/message.h"
#include "tests/unit/base/suites.h"

static int saved_stderr;
static int pipe_read;

static void stderr_replace(int fd)
{
    ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    close(fd);
}

static void setup(void)
{
    int ends[2];

    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    pipe_read = ends[0];
    ck_assert_int_eq(fcntl(pipe_read, F_SETFL, O_NONBLOCK), 0);
    stderr_replace(ends[1]);
    log_set_level(LOG_LEVEL_INFO);
}

static void teardown(void)
{
    close(pipe_read);
    stderr_replace(saved_stderr);
}

// What has been written so far.
static const char *written(void)
{
    static char text[3 * LOG_LINE_BYTES_MAX];
    ssize_t length = read(pipe_read, text, sizeof(text) - 1);

    ck_assert(length >= 0 || errno == EAGAIN);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

static const char *written_text(const char *value)
{
    struct log_line line;

    log_begin(&line, LOG_LEVEL_INFO, "e");
    log_text(&line, "v", value);
    log_end(&line);
    return written();
}

START_TEST(test_fields)
{
    struct log_line line;

    log_begin(&line, LOG_LEVEL_NOTICE, "lock_granted");
    log_text(&line, "key", "a/b");
    log_number(&line, "fence", 17);
    log_number(&line, "least", INT64_MIN + 1);
    log_number(&line, "none", LB_NONE);
    log_text(&line, "null", NULL);
    log_end(&line);
    ck_assert_str_eq(written(),
                     "<5>event=lock_granted key=a/b fence=17 least=-9223372036854775807\n");
}
END_TEST

START_TEST(test_priorities)
{
    log_set_level(LOG_LEVEL_DEBUG);
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
        const char *text;

        log_message((enum log_level)level, "e", "m");
        text = written();
        ck_assert_int_eq(text[0], '<');
        ck_assert_int_eq(text[1], '3' + level);
        ck_assert_str_eq(text + 2, ">event=e message=m\n");
    }
}
END_TEST

START_TEST(test_level_filters)
{
    log_message(LOG_LEVEL_DEBUG, "quiet", "m");
    ck_assert_str_eq(written(), "");
    log_set_level(LOG_LEVEL_ERROR);
    log_message(LOG_LEVEL_WARNING, "quiet", "m");
    ck_assert_str_eq(written(), "");
    log_message(LOG_LEVEL_ERROR, "loud", "m");
    ck_assert_str_eq(written(), "<3>event=loud message=m\n");
    ck_assert_int_eq(log_dropped(), 0);
}
END_TEST

START_TEST(test_escaping)
{
    ck_assert_str_eq(written_text("plain=1,2"), "<6>event=e v=plain=1,2\n");
    ck_assert_str_eq(written_text(""), "<6>event=e v=\"\"\n");
    ck_assert_str_eq(written_text("two words"), "<6>event=e v=\"two words\"\n");
    ck_assert_str_eq(written_text("say \"x\""), "<6>event=e v=\"say \\\"x\\\"\"\n");
    ck_assert_str_eq(written_text("a\\b"), "<6>event=e v=\"a\\\\b\"\n");
    ck_assert_str_eq(written_text("a\nevent=forged"), "<6>event=e v=a\\x0aevent=forged\n");
    ck_assert_str_eq(written_text("\x1b[31m\x7f"), "<6>event=e v=\\x1b[31m\\x7f\n");
    ck_assert_str_eq(written_text("k\xc3\xa4se \t"), "<6>event=e v=\"k\\xc3\\xa4se \\x09\"\n");
}
END_TEST

START_TEST(test_message_is_formatted_and_escaped)
{
    log_message(LOG_LEVEL_WARNING, "slow", "took %d ms\n", 7);
    ck_assert_str_eq(written(), "<4>event=slow message=\"took 7 ms\\x0a\"\n");
}
END_TEST

// A value of each length around the limit, of plain bytes or of escapes: never too long a line,
// always a whole one, and visibly cut when it was.
static void check_cut(size_t length, char byte)
{
    char value[LOG_LINE_BYTES_MAX * 2];
    const char *text;
    size_t written_length;

    memset(value, byte, length);
    value[0] = ' ';
    value[length] = '\0';
    text = written_text(value);
    written_length = strlen(text);
    ck_assert_uint_le(written_length, LOG_LINE_BYTES_MAX);
    ck_assert_ptr_eq(strchr(text, '\n'), text + written_length - 1);
    ck_assert_int_eq(text[written_length - 2], '"');
    if (length > LOG_LINE_BYTES_MAX)
        ck_assert_int_eq(strncmp(text + written_length - 5, "...\"", 4), 0);
}

START_TEST(test_truncation)
{
    for (size_t length = LOG_LINE_BYTES_MAX - 60; length < LOG_LINE_BYTES_MAX + 40; length++)
        check_cut(length, 'x');
    for (size_t length = LOG_LINE_BYTES_MAX / 4 - 20; length < LOG_LINE_BYTES_MAX / 4 + 10;
         length++)
        check_cut(length, '\x01');
    check_cut(LOG_LINE_BYTES_MAX * 2 - 1, '\\');
}
END_TEST

START_TEST(test_fields_after_a_cut)
{
    char value[LOG_LINE_BYTES_MAX * 2];
    struct log_line line;
    const char *text;

    memset(value, 'x', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    log_begin(&line, LOG_LEVEL_INFO, "e");
    for (int i = 0; i < 100; i++) {
        log_text(&line, "name", value);
        log_number(&line, "number", i);
    }
    log_end(&line);
    text = written();
    ck_assert_uint_le(strlen(text), LOG_LINE_BYTES_MAX);
    ck_assert_ptr_nonnull(strstr(text, "xxx..."));
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(test_long_event_and_message)
{
    char value[LOG_LINE_BYTES_MAX * 2];

    memset(value, 'x', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    log_message(LOG_LEVEL_INFO, value, "m");
    ck_assert_uint_le(strlen(written()), LOG_LINE_BYTES_MAX);
    log_message(LOG_LEVEL_INFO, "e", "%s", value);
    ck_assert_ptr_nonnull(strstr(written(), "xxx...\n"));
}
END_TEST

// Standard error blocks once the pipe is full: a write would hang, and the test run into its
// time-out.
// Wherever a line is full, what is there of the next field is its beginning, and a cut is marked.
static void assert_cut_well(const char *text, size_t filled, const char *field)
{
    const char *rest = text + filled;
    size_t length = strlen(text);

    ck_assert_uint_le(length, LOG_LINE_BYTES_MAX);
    ck_assert_int_eq(text[length - 1], '\n');
    ck_assert_ptr_eq(strchr(text, '\n'), text + length - 1);
    if (strncmp(rest, field, strlen(field)) == 0)
        return;

    const char *dots = strstr(rest, "...");

    ck_assert_ptr_nonnull(dots);
    // Either nothing of the field is there, or its name whole.
    ck_assert_int_eq(strncmp(rest, field, (size_t)(dots - rest)), 0);
    ck_assert(dots == rest + 1 || dots >= rest + strlen(" name="));
}

START_TEST(test_a_cut_at_each_byte_of_a_field)
{
    static char value[LOG_LINE_BYTES_MAX];
    static const char *const values[] = {"plain", "two words"};
    static const char *const fields[] = {" name=plain", " name=\"two words\""};
    struct log_line line;

    for (size_t filled = LOG_LINE_BYTES_MAX - 60; filled < LOG_LINE_BYTES_MAX - 25; filled++) {
        memset(value, 'x', filled);
        value[filled] = '\0';
        log_begin(&line, LOG_LEVEL_INFO, "e");
        log_text(&line, "v", value);
        log_text(&line, "name", values[_i]);
        log_end(&line);
        assert_cut_well(written(), strlen("<6>event=e v=") + filled, fields[_i]);
    }
}
END_TEST

START_TEST(test_full_pipe_drops_and_counts)
{
    int64_t dropped = log_dropped();
    int lines = 0;

    while (log_dropped() == dropped && lines++ < 1000000)
        log_message(LOG_LEVEL_INFO, "fill", "a line that nobody reads");
    ck_assert_int_eq(log_dropped(), dropped + 1);
    log_message(LOG_LEVEL_INFO, "fill", "another");
    ck_assert_int_eq(log_dropped(), dropped + 2);
    log_message(LOG_LEVEL_DEBUG, "fill", "below the level: not dropped");
    ck_assert_int_eq(log_dropped(), dropped + 2);

    while (*written())
        ;
    log_message(LOG_LEVEL_INFO, "again", "m");
    ck_assert_str_eq(written(), "<6>event=again message=m\n");
    ck_assert_int_eq(log_dropped(), dropped + 2);
}
END_TEST

// The default action of SIGPIPE would end the process.
START_TEST(test_closed_pipe_drops)
{
    int64_t dropped = log_dropped();
    int ends[2];

    (void)signal(SIGPIPE, SIG_DFL);
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    stderr_replace(ends[1]);
    log_message(LOG_LEVEL_INFO, "e", "m");
    ck_assert_int_eq(log_dropped(), dropped + 1);
}
END_TEST

START_TEST(test_no_stderr_drops)
{
    int64_t dropped = log_dropped();

    close(STDERR_FILENO);
    log_message(LOG_LEVEL_INFO, "e", "m");
    ck_assert_int_eq(log_dropped(), dropped + 1);
}
END_TEST

// /dev/full says that it can be written to, and then fails.
START_TEST(test_failed_write_drops)
{
    int64_t dropped = log_dropped();
    int full = open("/dev/full", O_WRONLY);

    ck_assert_int_ge(full, 0);
    stderr_replace(full);
    errno = EINTR;
    log_message(LOG_LEVEL_INFO, "e", "m");
    ck_assert_int_eq(errno, EINTR);
    ck_assert_int_eq(log_dropped(), dropped + 1);
}
END_TEST

START_TEST(test_errno_is_kept)
{
    errno = ENOSPC;
    log_message(LOG_LEVEL_INFO, "e", "m");
    ck_assert_int_eq(errno, ENOSPC);
    close(STDERR_FILENO);
    errno = ENOSPC;
    log_message(LOG_LEVEL_INFO, "e", "m");
    ck_assert_int_eq(errno, ENOSPC);
}
END_TEST

START_TEST(test_terminal_has_no_priority)
{
    int primary = posix_openpt(O_RDWR | O_NOCTTY);
    char text[64] = "";
    ssize_t length;
    int secondary;

    ck_assert_int_ge(primary, 0);
    ck_assert_int_eq(grantpt(primary), 0);
    ck_assert_int_eq(unlockpt(primary), 0);
    secondary = open(ptsname(primary), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(secondary, 0);
    stderr_replace(secondary);
    log_message(LOG_LEVEL_INFO, "e", "m");
    length = read(primary, text, sizeof(text) - 1);
    ck_assert_int_gt(length, 0);
    ck_assert_str_eq(text, "event=e message=m\r\n");
    close(primary);
}
END_TEST

Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_fields);
    tcase_add_test(tests, test_priorities);
    tcase_add_test(tests, test_level_filters);
    tcase_add_test(tests, test_escaping);
    tcase_add_test(tests, test_message_is_formatted_and_escaped);
    tcase_add_test(tests, test_truncation);
    tcase_add_test(tests, test_fields_after_a_cut);
    tcase_add_test(tests, test_long_event_and_message);
    tcase_add_loop_test(tests, test_a_cut_at_each_byte_of_a_field, 0, 2);
    tcase_add_test(tests, test_full_pipe_drops_and_counts);
    tcase_add_test(tests, test_closed_pipe_drops);
    tcase_add_test(tests, test_no_stderr_drops);
    tcase_add_test(tests, test_failed_write_drops);
    tcase_add_test(tests, test_errno_is_kept);
    tcase_add_test(tests, test_terminal_has_no_priority);
    suite_add_tcase(suite, tests);
    return suite;
}
