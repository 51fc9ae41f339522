// A kernel that does not read, and an INI library that is not as ours: the configuration stays as
// it was and the message says why.
#include <check.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/unit/config/files.h"
#include "tests/unit/config/suites.h"

#define TEXT "ttl_max = 12s\n"

int __real_fstat(int fd, struct stat *status);
int __wrap_fstat(int fd, struct stat *status);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
int __real_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user);
int __wrap_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user);

static int fstat_errno;
static int read_errno;
static int reads_before; // that are a byte each
static int (*ini_instead)(ini_reader reader, void *stream);

static struct config config;
static struct config_error error;

int __wrap_fstat(int fd, struct stat *status)
{
    if (!fstat_errno)
        return __real_fstat(fd, status);
    errno = fstat_errno;
    return -1;
}

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    if (!read_errno)
        return __real_read(fd, bytes, size);
    if (reads_before-- > 0)
        return __real_read(fd, bytes, 1);
    errno = read_errno;
    if (read_errno == EINTR)
        read_errno = 0; // once
    return -1;
}

int __wrap_ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *user)
{
    if (ini_instead)
        return ini_instead(reader, stream);
    return __real_ini_parse_stream(reader, stream, handler, user);
}

static void setup(void)
{
    files_setup();
    config_init_defaults(&config);
}

static int load(const char *text)
{
    const char *path = files_write("conf", text, strlen(text));
    struct config before = config;
    int rc = config_load_file(path, &config, &error);

    if (rc < 0) {
        ck_assert_mem_eq(&config, &before, sizeof(config));
        ck_assert_str_eq(error.place, path);
    }
    return rc;
}

START_TEST(test_a_read_that_is_interrupted_goes_on)
{
    read_errno = EINTR;
    reads_before = _i;
    ck_assert_int_eq(load(TEXT), 0);
    ck_assert_int_eq(read_errno, 0);
    ck_assert_int_eq((int)config.ttl_max_ms, 12000);
}
END_TEST

START_TEST(test_a_read_that_fails)
{
    read_errno = EIO;
    reads_before = _i;
    ck_assert_int_eq(load(TEXT), -EIO);
    ck_assert_str_eq(error.message, "the file cannot be read: Input/output error");
}
END_TEST

START_TEST(test_a_password_that_cannot_be_read)
{
    struct backend_url url;

    (void)snprintf(config.backend_password_file, sizeof(config.backend_password_file), "%s",
                   files_write("password", "word\n", 5));
    read_errno = EIO;
    ck_assert_int_eq(config_read_backend(&config, &url, &error), -EIO);
    ck_assert_str_eq(error.option, "backend_password_file");
    ck_assert_ptr_nonnull(strstr(error.message, ": the file cannot be read: "));
    ck_assert_ptr_null(strstr(error.message, "word\n"));
}
END_TEST

START_TEST(test_what_cannot_be_looked_at_is_no_file)
{
    fstat_errno = EOVERFLOW;
    ck_assert_int_eq(load(TEXT), -EINVAL);
    ck_assert_str_eq(error.message, "it is not a regular file");
}
END_TEST

// One with room for 20 bytes, as INI_MAX_LINE may say.
static int ini_small(ini_reader reader, void *stream)
{
    char line[20];

    while (reader(line, sizeof(line), stream))
        ck_assert_uint_lt(strlen(line), sizeof(line));
    return 0;
}

START_TEST(test_a_library_with_short_lines)
{
    ini_instead = ini_small;
    ck_assert_int_eq(load(TEXT "#234567890123456789\n"), -EINVAL);
    ck_assert_str_eq(error.message, "the line is longer than the INI library can read");
    ck_assert_int_eq(error.line, 2);
    ck_assert_int_eq(load(TEXT "#23456789012345678\n"), 0); // with newline and NUL 20
}
END_TEST

static int ini_without_memory(ini_reader reader, void *stream)
{
    (void)reader;
    (void)stream;
    return -2;
}

START_TEST(test_a_library_without_memory)
{
    ini_instead = ini_without_memory;
    ck_assert_int_eq(load(TEXT), -ENOMEM);
    ck_assert_str_eq(error.message, "out of memory");
}
END_TEST

static int ini_strict(ini_reader reader, void *stream)
{
    (void)reader;
    (void)stream;
    return 7;
}

// What we let pass and it does not: a line of the file, which it names.
START_TEST(test_a_library_with_rules_of_its_own)
{
    ini_instead = ini_strict;
    ck_assert_int_eq(load(TEXT), -EINVAL);
    ck_assert_int_eq(error.line, 7);
    ck_assert_str_eq(error.message, "the line is no option (name = value)");
}
END_TEST

static const struct {
    const char *text;
    const char *message;
} sections[] = {
    {"[lockbroker2]", "there is no such section"},
    {"[lockbroke]", "there is no such section"},
    {"[l]", "there is no such section"},
    {"[lockbroker]x", "after a section only a comment may follow"},
    {"[lockbroker]#x", "after a section only a comment may follow"},
    {"[lockbroker] x", "after a section only a comment may follow"},
    {"[lockbroker] #x", NULL},
    {"[lockbroker] ;x", NULL},
    {"[lockbroker] ", NULL},
    {"[lockbroker]", NULL},
};

START_TEST(test_what_a_line_with_a_section_may_be)
{
    char text[80];
    int rc;

    (void)snprintf(text, sizeof(text), "%s\n" TEXT, sections[_i].text);
    rc = load(text);
    if (!sections[_i].message) {
        ck_assert_int_eq(rc, 0);
        ck_assert_int_eq((int)config.ttl_max_ms, 12000);
        return;
    }
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_int_eq(error.line, 1);
    ck_assert_ptr_nonnull(strstr(error.message, sections[_i].message));
}
END_TEST

Suite *config_fault_suite(void)
{
    Suite *suite = suite_create("config_fault");
    TCase *tests = tcase_create("config_fault");

    tcase_add_checked_fixture(tests, setup, files_teardown);
    tcase_add_loop_test(tests, test_a_read_that_is_interrupted_goes_on, 0, 3);
    tcase_add_loop_test(tests, test_a_read_that_fails, 0, 3);
    tcase_add_test(tests, test_a_password_that_cannot_be_read);
    tcase_add_test(tests, test_what_cannot_be_looked_at_is_no_file);
    tcase_add_test(tests, test_a_library_with_short_lines);
    tcase_add_test(tests, test_a_library_without_memory);
    tcase_add_test(tests, test_a_library_with_rules_of_its_own);
    tcase_add_loop_test(tests, test_what_a_line_with_a_section_may_be, 0,
                        LB_ARRAY_LENGTH(sections));
    suite_add_tcase(suite, tests);
    return suite;
}
