// What may lie at the path of the socket, and what is left there.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/io/listener.h"
#include "tests/unit/io/fault_call.h"
#include "tests/unit/io/suites.h"

static struct listener listener;
static char directory[64];
static char path[128];
static char problem[LISTENER_PROBLEM_BYTES_MAX];

static void setup(void)
{
    (void)unsetenv("LISTEN_FDS");
    (void)snprintf(directory, sizeof(directory), "/tmp/lb-listener-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/s", directory);
    problem[0] = '\0';
}

static void teardown(void)
{
    (void)unlink(path);
    // Nothing else is left behind.
    ck_assert_int_eq(rmdir(directory), 0);
}

static int open_listener(struct listener *ret_listener)
{
    return listener_open(ret_listener, path, 0660, "", problem);
}

static int bind_at_path(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memcpy(address.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int connect_to_path(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int r;

    memcpy(address.sun_path, path, strlen(path) + 1);
    r = connect(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return r;
}

static struct stat path_stat(void)
{
    struct stat status;

    ck_assert_int_eq(lstat(path, &status), 0);
    return status;
}

START_TEST(it_is_made_with_its_mode_and_removed)
{
    (void)umask(0);
    ck_assert_int_eq(listener_open(&listener, path, 0640, "", problem), 0);
    ck_assert_int_eq(path_stat().st_mode, S_IFSOCK | 0640);
    ck_assert_int_eq((int)umask(0), 0); // left as it was
    ck_assert_int_eq(connect_to_path(), 0);
    listener_close(&listener);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(it_belongs_to_its_group)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(listener_open(&listener, path, 0660, "12345", problem), 0);
    ck_assert_uint_eq(path_stat().st_gid, 12345);
    listener_close(&listener);
    ck_assert_int_eq(listener_open(&listener, path, 0660, "daemon", problem), 0);
    ck_assert_uint_eq(path_stat().st_gid, 1);
    listener_close(&listener);
}
END_TEST

START_TEST(an_unknown_group_is_refused_and_nothing_is_left)
{
    ck_assert_int_lt(listener_open(&listener, path, 0660, "no-such-group", problem), 0);
    ck_assert_str_eq(problem, "socket_group: there is no group \"no-such-group\"");
}
END_TEST

START_TEST(a_group_that_cannot_be_given_is_named)
{
    if (geteuid() == 0)
        return;
    ck_assert_int_eq(listener_open(&listener, path, 0660, "root", problem), -EPERM);
    ck_assert_ptr_nonnull(strstr(problem, "socket_group: /"));
}
END_TEST

START_TEST(a_group_is_found_by_name_or_number)
{
    gid_t gid = 7;

    ck_assert_int_eq(listener_find_group("daemon", &gid), 0);
    ck_assert_uint_eq(gid, 1);
    ck_assert_int_eq(listener_find_group("54321", &gid), 0);
    ck_assert_uint_eq(gid, 54321);
    ck_assert_int_eq(listener_find_group("no-such-group", &gid), -ENOENT);
    ck_assert_int_eq(listener_find_group("4294967295", &gid), -ENOENT); // (gid_t)-1
    ck_assert_uint_eq(gid, 54321);
}
END_TEST

START_TEST(a_stale_socket_is_replaced)
{
    close(bind_at_path());
    ck_assert_int_ne(connect_to_path(), 0);
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(connect_to_path(), 0);
    listener_close(&listener);
}
END_TEST

START_TEST(a_live_socket_is_left_alone)
{
    int fd = bind_at_path();

    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(open_listener(&listener), -EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(problem, path));
    ck_assert_int_eq(connect_to_path(), 0);
    close(fd);
}
END_TEST

START_TEST(a_live_socket_with_a_full_backlog_is_live)
{
    int fd = bind_at_path();
    int waiting[3];
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(listen(fd, 0), 0);
    for (int i = 0; i < 3; i++) {
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(waiting[i], (struct sockaddr *)&address, sizeof(address));
    }
    ck_assert_int_eq(open_listener(&listener), -EADDRINUSE);
    for (int i = 0; i < 3; i++)
        close(waiting[i]);
    close(fd);
}
END_TEST

START_TEST(a_second_daemon_is_refused)
{
    struct listener second;

    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(open_listener(&second), -EADDRINUSE);
    ck_assert_int_eq(connect_to_path(), 0);

    // Not even when somebody removed the socket: the first one still runs.
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(open_listener(&second), -EADDRINUSE);
    listener_close(&listener);
    ck_assert_int_eq(open_listener(&second), 0);
    listener_close(&second);
}
END_TEST

START_TEST(another_kind_of_file_is_left_alone)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    (void)fclose(file);
    ck_assert_int_eq(open_listener(&listener), -EEXIST);
    ck_assert(S_ISREG(path_stat().st_mode));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/dev/null", path), 0);
    ck_assert_int_eq(open_listener(&listener), -EEXIST);
    ck_assert(S_ISLNK(path_stat().st_mode));
}
END_TEST

START_TEST(anothers_socket_is_not_removed)
{
    int fd;

    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(unlink(path), 0);
    fd = bind_at_path();
    listener_close(&listener);
    ck_assert_int_eq(access(path, F_OK), 0);
    close(fd);
}
END_TEST

START_TEST(a_path_too_long_is_refused)
{
    char long_path[200];

    (void)snprintf(long_path, sizeof(long_path), "%s/%0*d", directory,
                   108 - (int)strlen(directory) - 1, 0);
    ck_assert_uint_eq(strlen(long_path), 108);
    ck_assert_int_eq(listener_open(&listener, long_path, 0660, "", problem), -ENAMETOOLONG);
    long_path[107] = '\0';
    ck_assert_int_eq(listener_open(&listener, long_path, 0660, "", problem), 0);
    ck_assert_int_eq(access(long_path, F_OK), 0);
    listener_close(&listener);
}
END_TEST

START_TEST(no_directory_no_socket)
{
    ck_assert_int_eq(listener_open(&listener, "/nonexistent/s", 0660, "", problem), -ENOENT);
    ck_assert_str_eq(problem, "cannot create the socket /nonexistent/s: there is no directory "
                              "/nonexistent; create it, or choose another place with --socket");
}
END_TEST

START_TEST(a_file_in_the_way_is_no_directory)
{
    char inside[200];
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    (void)fclose(file);
    (void)snprintf(inside, sizeof(inside), "%s/s", path);
    ck_assert_int_eq(listener_open(&listener, inside, 0660, "", problem), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(problem, "there is no directory /"));
}
END_TEST

// Root may write everywhere, so it is a link in the lock file's place that stands for what is
// forbidden.
START_TEST(a_lock_file_that_cannot_be_made)
{
    char lock[140], expected[LISTENER_PROBLEM_BYTES_MAX];

    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    ck_assert_int_eq(symlink("/nonexistent", lock), 0);
    ck_assert_int_eq(open_listener(&listener), -ELOOP);
    (void)snprintf(expected, sizeof(expected),
                   "cannot create the socket %s: %s on its lock file %s;", path, strerror(ELOOP),
                   lock);
    ck_assert_msg(strncmp(problem, expected, strlen(expected)) == 0, "%s", problem);
    ck_assert_ptr_nonnull(strstr(problem, "--socket"));
    ck_assert_int_eq(unlink(lock), 0);
}
END_TEST

// What the kernel may refuse, whether the fault lies before or behind a stale socket, and how the
// operator is told of it.
static const struct {
    const char *call;
    int first;
    const char *what;
} refusals[] = {
    {"lstat", 1, "cannot be looked at"},
    {"socket", 1, "no socket to try it with"},
    {"unlink", 1, "the stale socket cannot be removed"},
    {"socket", 2, "cannot be bound"},
    {"bind", 1, "cannot be bound"},
    {"lstat", 2, "cannot be looked at"},
    {"chmod", 1, "its mode cannot be set"},
    {"listen", 1, "cannot be listened on"},
};

START_TEST(what_the_kernel_refuses_is_told_and_nothing_is_left)
{
    char expected[LISTENER_PROBLEM_BYTES_MAX];

    close(bind_at_path());
    fault_call_fail(refusals[_i].call, EPERM, refusals[_i].first, 1);
    ck_assert_int_eq(open_listener(&listener), -EPERM);
    (void)snprintf(expected, sizeof(expected), "%s: %s: %s", path, refusals[_i].what,
                   strerror(EPERM));
    ck_assert_str_eq(problem, expected);

    // The next attempt is as good as the first: no lock, and nobody seems to listen.
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(connect_to_path(), 0);
    listener_close(&listener);
}
END_TEST

START_TEST(a_group_that_is_not_ours_to_give_is_told)
{
    char expected[LISTENER_PROBLEM_BYTES_MAX];

    fault_call_fail("chown", EPERM, 1, 1);
    ck_assert_int_eq(listener_open(&listener, path, 0660, "daemon", problem), -EPERM);
    (void)snprintf(expected, sizeof(expected),
                   "socket_group: %s cannot be given to the group \"daemon\": %s", path,
                   strerror(EPERM));
    ck_assert_str_eq(problem, expected);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_group_without_a_name_is_none)
{
    gid_t gid = 7;

    ck_assert_int_eq(listener_find_group("", &gid), -ENOENT);
    ck_assert_int_eq(listener_find_group("12x", &gid), -ENOENT);
    ck_assert_uint_eq(gid, 7);
}
END_TEST

static void remove_lock_file(void)
{
    char lock[140];

    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    ck_assert_int_eq(unlink(lock), 0);
}

// Another daemon ends, and removes its lock file, right between our opening and our locking it.
START_TEST(a_lock_on_a_file_that_is_gone_is_no_lock)
{
    struct listener second;

    fault_call_before("flock", remove_lock_file);
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(open_listener(&second), -EADDRINUSE);
    ck_assert_str_eq(problem + strlen(path), ": another lockbrokerd runs on this socket");
    listener_close(&listener);
}
END_TEST

static void replace_lock_file(void)
{
    char lock[140];
    int fd;

    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    // A second name keeps the inode from being used again at once.
    ck_assert_int_eq(rename(lock, path), 0);
    fd = open(lock, O_CREAT | O_EXCL | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(a_lock_on_a_file_that_cannot_be_looked_at_is_no_lock)
{
    fault_call_fail("fstat", EIO, 1, 1);
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(fault_call_left(), 0);
    ck_assert_int_eq(connect_to_path(), 0);
    listener_close(&listener);
}
END_TEST

START_TEST(a_lock_on_a_file_that_was_replaced_is_no_lock)
{
    struct listener second;

    fault_call_before("flock", replace_lock_file);
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(open_listener(&second), -EADDRINUSE);
    ck_assert_str_eq(problem + strlen(path), ": another lockbrokerd runs on this socket");
    listener_close(&listener);
}
END_TEST

START_TEST(a_socket_that_is_gone_is_not_missed)
{
    ck_assert_int_eq(open_listener(&listener), 0);
    ck_assert_int_eq(unlink(path), 0);
    listener_close(&listener);
    ck_assert_int_eq(listener.fd, -1);
}
END_TEST

// Opens with `fd` as the socket that a service manager has passed.
static int open_inherited(int fd)
{
    char pid[16];
    int saved = dup(3); // the test's own, if anything
    int r;

    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    (void)setenv("LISTEN_PID", pid, 1);
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)dup2(fd, 3);
    r = open_listener(&listener);
    (void)close(3);
    if (saved >= 0) {
        (void)dup2(saved, 3);
        (void)close(saved);
    }
    return r;
}

START_TEST(what_is_passed_must_be_a_listening_socket)
{
    int fd = bind_at_path();

    ck_assert_int_eq(open_inherited(fd), -EINVAL); // does not listen
    ck_assert_str_eq(problem, "the socket passed by LISTEN_FDS: is not a listening Unix stream "
                              "socket");
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(open_inherited(fd), 0);
    ck_assert_int_eq(listener.fd, 3);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);

    fault_call_fail("fcntl", EPERM, 2, 1);
    ck_assert_int_eq(open_inherited(fd), -EPERM);
    ck_assert_ptr_nonnull(strstr(problem, "the inherited socket: cannot be made non-blocking"));
    close(fd);
}
END_TEST

Suite *listener_suite(void)
{
    Suite *suite = suite_create("listener");
    TCase *tcase = tcase_create("listener");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, it_is_made_with_its_mode_and_removed);
    tcase_add_test(tcase, it_belongs_to_its_group);
    tcase_add_test(tcase, an_unknown_group_is_refused_and_nothing_is_left);
    tcase_add_test(tcase, a_group_that_cannot_be_given_is_named);
    tcase_add_test(tcase, a_group_is_found_by_name_or_number);
    tcase_add_test(tcase, a_stale_socket_is_replaced);
    tcase_add_test(tcase, a_live_socket_is_left_alone);
    tcase_add_test(tcase, a_live_socket_with_a_full_backlog_is_live);
    tcase_add_test(tcase, a_second_daemon_is_refused);
    tcase_add_test(tcase, another_kind_of_file_is_left_alone);
    tcase_add_test(tcase, anothers_socket_is_not_removed);
    tcase_add_test(tcase, a_path_too_long_is_refused);
    tcase_add_test(tcase, no_directory_no_socket);
    tcase_add_test(tcase, a_file_in_the_way_is_no_directory);
    tcase_add_test(tcase, a_lock_file_that_cannot_be_made);
    tcase_add_loop_test(tcase, what_the_kernel_refuses_is_told_and_nothing_is_left, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tcase, a_group_that_is_not_ours_to_give_is_told);
    tcase_add_test(tcase, a_group_without_a_name_is_none);
    tcase_add_test(tcase, a_lock_on_a_file_that_is_gone_is_no_lock);
    tcase_add_test(tcase, a_lock_on_a_file_that_cannot_be_looked_at_is_no_lock);
    tcase_add_test(tcase, a_lock_on_a_file_that_was_replaced_is_no_lock);
    tcase_add_test(tcase, a_socket_that_is_gone_is_not_missed);
    tcase_add_test(tcase, what_is_passed_must_be_a_listening_socket);
    suite_add_tcase(suite, tcase);
    return suite;
}
