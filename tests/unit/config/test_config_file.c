// Configuration files: what is read, and what is refused with which line.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/unit/config/files.h"
#include "tests/unit/config/suites.h"

static struct config config;
static struct config_error error;

// The binary is linked with --wrap=malloc, so that the parser's allocation can be made to fail.
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool malloc_fails;

void *__wrap_malloc(size_t size)
{
    return malloc_fails ? NULL : __real_malloc(size);
}

// Loads a text; on failure the error is in `error` and `config` must be as it was.
static int load_bytes(const char *text, size_t length)
{
    const char *path = files_write("conf", text, length);
    struct config before;
    int rc;

    config_init_defaults(&config);
    before = config;
    rc = config_load_file(path, &config, &error);
    if (rc < 0) {
        ck_assert_mem_eq(&config, &before, sizeof(config));
        ck_assert_str_eq(error.place, path);
    }
    return rc;
}

static int load(const char *text)
{
    return load_bytes(text, strlen(text));
}

START_TEST(test_good_file)
{
    ck_assert_int_eq(load("# a comment\n"
                          "; another\n"
                          "  # indented\n"
                          "\n"
                          " \t \n"
                          "ttl_max=5s\n"
                          "[lockbroker]  # ours\n"
                          "prefix = my app:x;y: \r\n"
                          "max_wait\t=\t2m ; two minutes\n"
                          "socket_group =\n"
                          "log_level = debug"),
                     0);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
    ck_assert_str_eq(config.prefix, "my app:x;y:");
    ck_assert_int_eq(config.max_wait_ms, 120000);
    ck_assert_int_eq(config.log_level, CONFIG_LEVEL_DEBUG);
}
END_TEST

START_TEST(test_empty_files)
{
    ck_assert_int_eq(load(""), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "the file is empty"));
    ck_assert_int_eq(load("\n\n"), 0);
    ck_assert_int_eq(load("[lockbroker]"), 0);
    ck_assert_int_eq(load("\xef\xbb\xbf"
                          "ttl_max = 5s\n"),
                     0);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
}
END_TEST

static const struct {
    const char *text;
    int line;
    const char *option;
    const char *message; // a part of it
} bad[] = {
    {"\n\nttl_max = 5 parsecs\n", 3, "ttl_max",
     "\"5 parsecs\" is not a duration (for example 30s, 500ms, 1h)"},
    {"ttl_max =\n", 1, "ttl_max", "is not a duration"},
    {"[lockbroker]\nttl_mx = 5s\n", 2, "", "`ttl_mx` is no option; did you mean ttl_max?"},
    {"ttl-max = 5s\n", 1, "", "`ttl-max` is no option; did you mean ttl_max?"},
    {"ttl_max = 5s\nttl_max = 5s\n", 2, "ttl_max", "set twice"},
    {"ttl_max = 5s\n[lockbroker]\nttl_max = 5s\n", 3, "ttl_max", "set twice"},
    {"[redis]\n", 1, "", "no such section"},
    {"[lockbroker\n", 1, "", "no such section"},
    {"[lockbroker] ttl_max = 5s\n", 1, "", "only a comment"},
    {"[lockbroker]# x\n", 1, "", "only a comment"},
    {"ttl_max\n", 1, "", "no option"},
    {"ttl_max: 5s\n", 1, "", "no option"},
    {"ttl_max: a=b\n", 1, "", "no option name"},
    {"= 5s\n", 1, "", "no option name"},
    {"Ttl_max = 5s\n", 1, "", "`Ttl_max` is no option; did you mean ttl_max?"},
    {"redis://:hunter2=@h\n", 1, "", "no option name"},
    {"ttl_max ;= 5s\n", 1, "", "no option name"},
    {"prefix = a\n b\n", 2, "", "begins with a blank"},
    {"prefix = a\n\tttl_max = 5s\n", 2, "", "begins with a blank"},
    {" ttl_max = 5s\n", 1, "", "begins with a blank"},
    {"prefix = a\x01\n", 1, "", "control character"},
    {"prefix = a\tb\n", 1, "prefix", "control character"},
    {"prefix = a\rttl_max = 5s\n", 1, "", "control character"},
    {"# \x1b[0m\n", 1, "", "control character"},
    {"# \x7f\n", 1, "", "control character"},
    {"ttl_max = 5s # five\n", 1, "ttl_max", "is not a duration"},
    {"backend = redis://:hunter2@h:0\n", 1, "backend", "port"},
    {"ttl_max = x\nmax_wait = y\n", 1, "ttl_max", "is not a duration"},
    {"ttl_max = x\nnonsense\n", 1, "ttl_max", "is not a duration"},
};

START_TEST(test_bad_file)
{
    char text[1024];

    ck_assert_int_eq(load(bad[_i].text), -EINVAL);
    config_error_format(&error, text, sizeof(text));
    ck_assert_msg(strstr(error.message, bad[_i].message), "%s", text);
    ck_assert_int_eq(error.line, bad[_i].line);
    ck_assert_str_eq(error.option, bad[_i].option);
    ck_assert_ptr_null(strstr(text, "hunter2"));
}
END_TEST

START_TEST(test_message_has_file_line_and_option)
{
    char text[1024], expected[1024];

    ck_assert_int_eq(load("\nttl_max = 5 parsecs\n"), -EINVAL);
    config_error_format(&error, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected),
                   "%s:2: ttl_max: \"5 parsecs\" is not a duration "
                   "(for example 30s, 500ms, 1h)",
                   files_path("conf"));
    ck_assert_str_eq(text, expected);
}
END_TEST

START_TEST(test_nul_byte)
{
    static const char text[] = "ttl_max = 5s\nprefix = a\0b\n";

    ck_assert_int_eq(load_bytes(text, sizeof(text) - 1), -EINVAL);
    ck_assert_int_eq(error.line, 2);
    ck_assert_ptr_nonnull(strstr(error.message, "control character"));
}
END_TEST

// `prefix = xxx...` of so many bytes, then a second line.
static int load_line(size_t length, const char *rest)
{
    char text[1024] = "prefix = ";

    memset(text + 9, 'x', length - 9);
    (void)strcpy(text + length, rest);
    return load(text);
}

// The longest line arrives whole: nothing is cut, and nothing of it is read as a new line.
START_TEST(test_line_lengths)
{
    ck_assert_int_eq(load_line(CONFIG_LINE_BYTES_MAX, "\nttl_max = 5s\n"), 0);
    ck_assert_uint_eq(strlen(config.prefix), CONFIG_LINE_BYTES_MAX - 9);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
    ck_assert_int_eq(load_line(CONFIG_LINE_BYTES_MAX, "\r\nttl_max = 5s\n"), 0);
    ck_assert_uint_eq(strlen(config.prefix), CONFIG_LINE_BYTES_MAX - 9);
    ck_assert_int_eq(load_line(CONFIG_LINE_BYTES_MAX, ""), 0);
    for (size_t length = CONFIG_LINE_BYTES_MAX + 1; length < 450; length++) {
        ck_assert_int_eq(load_line(length, "\nttl_max = 5s\n"), -EINVAL);
        ck_assert_int_eq(error.line, 1);
        ck_assert_ptr_nonnull(strstr(error.message, "longer than 197 bytes"));
    }
}
END_TEST

START_TEST(test_long_comment)
{
    char text[300];

    memset(text, '#', sizeof(text));
    ck_assert_int_eq(load_bytes(text, sizeof(text)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "longer than 197 bytes"));
}
END_TEST

START_TEST(test_file_sizes)
{
    char *text = malloc(CONFIG_FILE_BYTES_MAX + 1);

    memset(text, '\n', CONFIG_FILE_BYTES_MAX + 1);
    ck_assert_int_eq(load_bytes(text, CONFIG_FILE_BYTES_MAX), 0);
    ck_assert_int_eq(load_bytes(text, CONFIG_FILE_BYTES_MAX + 1), -EINVAL);
    ck_assert_str_eq(error.message, "the file is larger than 65536 bytes");
    free(text);
}
END_TEST

START_TEST(test_files_that_are_none)
{
    ck_assert_int_eq(config_load_file(files_path("absent"), &config, &error), -ENOENT);
    ck_assert_ptr_nonnull(strstr(error.message, "No such file"));
    ck_assert_int_eq(config_load_file(files_path("."), &config, &error), -EINVAL);
    ck_assert_str_eq(error.message, "it is not a regular file");
    ck_assert_int_eq(config_load_file("/dev/zero", &config, &error), -EINVAL);
    ck_assert_str_eq(error.message, "it is not a regular file");
    // Nobody writes to it, so a plain open would wait for ever.
    ck_assert_int_eq(mkfifo(files_path("fifo"), 0600), 0);
    ck_assert_int_eq(config_load_file(files_path("fifo"), &config, &error), -EINVAL);
    ck_assert_str_eq(error.message, "it is not a regular file");
}
END_TEST

START_TEST(test_unreadable_file)
{
    const char *path = files_write("secret", "", 0);

    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    ck_assert_int_eq(chmod(path, 0), geteuid() == 65534 ? -1 : 0);
    if (geteuid() == 65534) {
        ck_assert_int_eq(seteuid(0), 0);
        ck_assert_int_eq(chmod(path, 0), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    ck_assert_int_eq(config_load_file(path, &config, &error), -EACCES);
    ck_assert_ptr_nonnull(strstr(error.message, "Permission denied"));
    (void)!seteuid(0);
}
END_TEST

START_TEST(test_out_of_memory)
{
    const char *path = files_write("conf", "ttl_max = 5s\n", 13);
    int rc;

    config_init_defaults(&config);
    malloc_fails = true;
    rc = config_load_file(path, &config, &error);
    malloc_fails = false;
    ck_assert_int_eq(rc, -ENOMEM);
    ck_assert_str_eq(error.message, "out of memory");
    ck_assert_str_eq(error.place, path);
    ck_assert_int_eq(config.ttl_max_ms, 30000);
    ck_assert_int_eq(config_load_file(path, &config, &error), 0);
    ck_assert_int_eq(config.ttl_max_ms, 5000);
}
END_TEST

static int read_backend(const char *backend, const char *password, size_t length,
                        struct backend_url *ret_url)
{
    const char *path = files_write("password", password, length);

    config_init_defaults(&config);
    ck_assert_int_eq(config_set_flag(&config, "-", "backend", backend, &error), 0);
    ck_assert_int_eq(config_set_flag(&config, "-", "backend_password_file", path, &error), 0);
    return config_read_backend(&config, ret_url, &error);
}

START_TEST(test_password_file)
{
    struct backend_url url;

    ck_assert_int_eq(read_backend("redis://u@h:1/2", "sec ret\n", 8, &url), 0);
    ck_assert_str_eq(url.user, "u");
    ck_assert_str_eq(url.password, "sec ret");
    ck_assert_int_eq(url.database, 2);
    ck_assert_int_eq(read_backend("redis+unix:///s", "secret\r\nmore\n", 14, &url), 0);
    ck_assert_str_eq(url.password, "secret");
    ck_assert_int_eq(read_backend("redis://h", "%41", 3, &url), 0);
    ck_assert_str_eq(url.password, "%41");
    ck_assert_int_eq(read_backend("memory://", "", 0, &url), 0);
    ck_assert_int_eq(url.kind, BACKEND_KIND_MEMORY);
}
END_TEST

START_TEST(test_password_file_lengths)
{
    char text[5000];
    struct backend_url url;

    memset(text, 'x', sizeof(text));
    ck_assert_int_eq(read_backend("redis://h", text, 512, &url), 0);
    ck_assert_uint_eq(strlen(url.password), 512);
    ck_assert_int_eq(read_backend("redis://h", text, 513, &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "longer than 512"));
    ck_assert_int_eq(read_backend("redis://h", text, sizeof(text), &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "larger than"));
}
END_TEST

START_TEST(test_bad_password_files)
{
    struct backend_url url = {.port = 4711};
    char text[1024], expected[1024];

    ck_assert_int_eq(read_backend("redis://h", "", 0, &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "is empty"));
    ck_assert_int_eq(read_backend("redis://h", "\nhunter2\n", 9, &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "is empty"));
    ck_assert_int_eq(read_backend("redis://h", "hun\0ter2\n", 9, &url), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.message, "NUL"));
    config_error_format(&error, text, sizeof(text));
    ck_assert_ptr_null(strstr(text, "hun"));
    (void)snprintf(expected, sizeof(expected), "backend_password_file: %s: the first line",
                   files_path("password"));
    ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
    ck_assert_int_eq(unlink(files_path("password")), 0);
    ck_assert_int_eq(config_read_backend(&config, &url, &error), -ENOENT);
    config_error_format(&error, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected),
                   "backend_password_file: %s: the file cannot be opened: "
                   "No such file or directory",
                   files_path("password"));
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(url.port, 4711);
}
END_TEST

START_TEST(test_no_password_file)
{
    struct backend_url url;

    config_init_defaults(&config);
    ck_assert_int_eq(config_set(&config, "backend=redis://:a%20b@h", &error), 0);
    ck_assert_int_eq(config_read_backend(&config, &url, &error), 0);
    ck_assert_str_eq(url.password, "a b");
}
END_TEST

Suite *config_file_suite(void)
{
    Suite *suite = suite_create("config_file");
    TCase *tests = tcase_create("config_file");

    tcase_add_checked_fixture(tests, files_setup, files_teardown);
    tcase_add_test(tests, test_good_file);
    tcase_add_test(tests, test_empty_files);
    tcase_add_loop_test(tests, test_bad_file, 0, LB_ARRAY_LENGTH(bad));
    tcase_add_test(tests, test_message_has_file_line_and_option);
    tcase_add_test(tests, test_nul_byte);
    tcase_add_test(tests, test_line_lengths);
    tcase_add_test(tests, test_long_comment);
    tcase_add_test(tests, test_file_sizes);
    tcase_add_test(tests, test_files_that_are_none);
    tcase_add_test(tests, test_unreadable_file);
    tcase_add_test(tests, test_out_of_memory);
    tcase_add_test(tests, test_password_file);
    tcase_add_test(tests, test_password_file_lengths);
    tcase_add_test(tests, test_bad_password_files);
    tcase_add_test(tests, test_no_password_file);
    suite_add_tcase(suite, tests);
    return suite;
}
