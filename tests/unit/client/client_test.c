// The connection over a socket pair, step by step, with no second thread: what goes out, and what
// each incoming line does.
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "tests/unit/client/scripted_broker.h"
#include "tests/unit/client/suites.h"

static struct lb_client *client;
static int far;

static void setup(void)
{
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ck_assert_int_eq(client_new(fds[0], &client), 0);
    far = fds[1];
}

static void teardown(void)
{
    lb_close(client);
    if (far >= 0)
        close(far);
}

static void tell(const char *text)
{
    ck_assert_int_eq(send(far, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    (void)lb_dispatch(client);
}

static void hang_up(void)
{
    close(far);
    far = -1;
    (void)lb_dispatch(client);
}

// What the client has written by now.
static const char *heard(void)
{
    static char text[8192];
    ssize_t length;

    (void)lb_dispatch(client);
    length = recv(far, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static struct lb_event next_event(enum lb_event_kind kind)
{
    struct lb_event event = {0};

    ck_assert(lb_next_event(client, &event));
    ck_assert_int_eq(event.kind, kind);
    return event;
}

static void no_event(void)
{
    struct lb_event event;

    ck_assert(!lb_next_event(client, &event));
}

// A grant of "k" with fence 7 and `ttl_ms`, valid for `valid_ms`.
static struct lb_grant *grant_key(int64_t ttl_ms, int64_t valid_ms)
{
    struct lb_event event;
    uint64_t call;
    char line[256];

    ck_assert_int_eq(lb_acquire_start(client, "k", NULL, &call), 0);
    ck_assert_ptr_nonnull(strstr(heard(), "\"op\":\"acquire\""));
    (void)snprintf(line, sizeof(line),
                   "{\"id\":%" PRIu64 ",\"ok\":true,\"fence\":7,\"ttl_ms\":%" PRId64
                   ",\"deadline_ms\":%" PRId64 "}\n",
                   call, ttl_ms, scripted_now_ms() + valid_ms);
    tell(line);
    event = next_event(LB_EVENT_ANSWER);
    ck_assert_int_eq(event.result, 0);
    ck_assert_uint_eq(event.call, call);
    ck_assert_ptr_nonnull(event.grant);
    return event.grant;
}

START_TEST(a_grant_is_told_as_an_event)
{
    struct lb_grant *grant = grant_key(30000, 29000);

    ck_assert_str_eq(lb_grant_key(grant), "k");
    ck_assert_int_eq(lb_grant_fence(grant), 7);
    ck_assert_int_eq(lb_grant_ttl_ms(grant), 30000);
    ck_assert_int_eq(lb_grant_state(grant), LB_GRANT_OK);
    ck_assert(lb_valid(grant));
    no_event();
}
END_TEST

START_TEST(options_reach_the_wire)
{
    struct lb_acquire_options options = {.size = sizeof(options),
                                         .owner = "o",
                                         .note = "why",
                                         .ttl_ms = 2000,
                                         .wait_ms = LB_WAIT_FOREVER,
                                         .max_hold_ms = 9000,
                                         .no_renew = true};
    const char *line;
    uint64_t call;

    ck_assert_int_eq(lb_acquire_start(client, "k", &options, &call), 0);
    line = heard();
    ck_assert_ptr_nonnull(strstr(line, "\"owner\":\"o\""));
    ck_assert_ptr_nonnull(strstr(line, "\"note\":\"why\""));
    ck_assert_ptr_nonnull(strstr(line, "\"ttl_ms\":2000"));
    ck_assert_ptr_nonnull(strstr(line, "\"wait_ms\":-1"));
    ck_assert_ptr_nonnull(strstr(line, "\"max_hold_ms\":9000"));
    ck_assert_ptr_nonnull(strstr(line, "\"renew\":false"));
    ck_assert_int_eq(lb_acquire_start(client, "j", NULL, &call), 0);
    line = heard();
    ck_assert_ptr_null(strstr(line, "ttl_ms"));
    ck_assert_ptr_null(strstr(line, "wait_ms"));
    ck_assert_ptr_null(strstr(line, "renew"));
}
END_TEST

START_TEST(unusable_arguments_are_refused)
{
    struct lb_acquire_options negative = {.size = sizeof(negative), .ttl_ms = -1};
    struct lb_acquire_options no_size = {.ttl_ms = 1000};
    struct {
        struct lb_acquire_options options;
        int64_t of_the_future;
    } larger = {.options = {.size = sizeof(larger)}, .of_the_future = 1};
    char key[LB_KEY_BYTES_MAX + 2];
    uint64_t call;

    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    ck_assert_int_eq(lb_acquire_start(client, key, NULL, &call), -EINVAL);
    key[sizeof(key) - 2] = '\0';
    ck_assert_int_eq(lb_acquire_start(client, key, NULL, &call), 0);
    ck_assert_int_eq(lb_acquire_start(client, "", NULL, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, NULL, NULL, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, "a\nb", NULL, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, "a\x7f", NULL, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, "a\xff", NULL, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, "k", &negative, &call), -EINVAL);
    ck_assert_int_eq(lb_acquire_start(client, "k", &no_size, &call), -EBADR);
    ck_assert_int_eq(lb_acquire_start(client, "k", &larger.options, &call), -EINVAL);
    larger.of_the_future = 0;
    ck_assert_int_eq(lb_acquire_start(client, "k", &larger.options, &call), 0);
}
END_TEST

START_TEST(notices_become_events_and_unknown_things_nothing)
{
    struct lb_grant *grant = grant_key(30000, 29000);

    tell("{\"event\":\"suspect\",\"key\":\"k\",\"fence\":7,\"valid_ms\":100,\"deadline_ms\":1,"
         "\"reason\":\"x\",\"colour\":\"blue\"}\n");
    ck_assert_ptr_eq(next_event(LB_EVENT_SUSPECT).grant, grant);
    ck_assert_int_eq(lb_grant_state(grant), LB_GRANT_SUSPECT);
    ck_assert_str_eq(lb_grant_suspect_reason(grant), "x");
    tell("{\"event\":\"weather\",\"key\":\"k\",\"fence\":7}\n");
    tell("{\"event\":\"lost\",\"key\":\"k\",\"fence\":8,\"deadline_ms\":1,\"reason\":\"x\"}\n");
    tell("{\"event\":\"lost\",\"key\":\"other\",\"fence\":7,\"deadline_ms\":1}\n");
    no_event();
    tell("{\"event\":\"lost\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1,"
         "\"reason\":\"of_the_future\"}\n");
    ck_assert_ptr_eq(next_event(LB_EVENT_LOST).grant, grant);
    ck_assert_str_eq(lb_grant_lost_reason(grant), "of_the_future");
    ck_assert(!lb_valid(grant));
    ck_assert_int_eq(lb_dispatch(client), 0);
}
END_TEST

START_TEST(a_newer_notice_takes_the_place_of_an_older)
{
    (void)grant_key(30000, 29000);

    tell("{\"event\":\"suspect\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1}\n"
         "{\"event\":\"lost\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1,\"reason\":\"x\"}\n");
    (void)next_event(LB_EVENT_LOST);
    no_event();
}
END_TEST

START_TEST(garbage_ends_the_connection)
{
    static const char *const garbage[] = {
        "no json\n",
        "[]\n",
        "{}\n",
        "{\"id\":99,\"ok\":true}\n",
        "{\"id\":\"1\",\"ok\":true}\n",
        "{\"id\":null,\"ok\":false,\"error\":\"malformed\"}\n",
        "{\"id\":1,\"ok\":true,\"fence\":7}\n",
        "\xff\xfe\n",
    };
    struct lb_event event;
    uint64_t call;

    ck_assert_int_eq(lb_acquire_start(client, "k", NULL, &call), 0);
    tell(garbage[_i]);
    ck_assert_int_eq(lb_dispatch(client), -EPROTO);
    ck_assert_int_eq(lb_fd(client), -1);
    ck_assert_int_eq(lb_poll_events(client), 0);
    event = next_event(LB_EVENT_ANSWER);
    ck_assert_int_eq(event.result, -EPROTO);
    ck_assert_ptr_null(event.grant);
    ck_assert_int_eq(next_event(LB_EVENT_DISCONNECTED).result, -EPROTO);
    ck_assert_int_eq(lb_acquire_start(client, "k", NULL, &call), -EPROTO);
}
END_TEST

START_TEST(a_line_without_end_ends_the_connection)
{
    char bytes[4096];

    memset(bytes, 'x', sizeof(bytes));
    for (int i = 0; i < 2 * LB_REPLY_LINE_BYTES_MAX / (int)sizeof(bytes); i++) {
        (void)send(far, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (lb_dispatch(client) != 0)
            break;
    }
    ck_assert_int_eq(lb_dispatch(client), -EPROTO);
}
END_TEST

START_TEST(grants_outlive_the_connection_up_to_their_deadline)
{
    struct lb_grant *grant = grant_key(1000, 300);
    struct lb_event event;

    hang_up();
    ck_assert_int_eq(next_event(LB_EVENT_DISCONNECTED).result, -ENOTCONN);
    no_event();
    ck_assert(lb_valid(grant));
    ck_assert_int_gt(lb_timeout_ms(client), 0);
    ck_assert_int_le(lb_timeout_ms(client), 300);
    ck_assert_int_eq(lb_check(grant), -ENOTCONN);
    while (!lb_next_event(client, &event)) {
        (void)poll(NULL, 0, lb_timeout_ms(client));
        (void)lb_dispatch(client);
    }
    ck_assert_int_eq(event.kind, LB_EVENT_LOST);
    ck_assert_str_eq(lb_grant_lost_reason(grant), "disconnected");
    ck_assert_int_ge(scripted_now_ms(), lb_grant_deadline_ms(grant));
    ck_assert_int_eq(lb_timeout_ms(client), -1);
}
END_TEST

START_TEST(a_loss_told_right_before_the_end_is_read)
{
    struct lb_grant *grant = grant_key(30000, 29000);
    const char *line = "{\"event\":\"lost\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1,"
                       "\"reason\":\"shutdown\"}\nhalf a li";

    ck_assert_int_eq(send(far, line, strlen(line), 0), (ssize_t)strlen(line));
    hang_up();
    ck_assert_ptr_eq(next_event(LB_EVENT_LOST).grant, grant);
    ck_assert_int_eq(next_event(LB_EVENT_DISCONNECTED).result, -ENOTCONN);
}
END_TEST

START_TEST(a_write_that_fails_reads_what_is_left)
{
    struct lb_grant *grant = grant_key(30000, 29000);
    uint64_t call;

    // The far end reads no more: writing to it raises SIGPIPE where that is not prevented.
    ck_assert_int_eq(shutdown(far, SHUT_RD), 0);
    ck_assert_int_eq(lb_acquire_start(client, "j", NULL, &call), 0);
    tell("{\"event\":\"lost\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1,\"reason\":\"x\"}\n");
    ck_assert_ptr_eq(next_event(LB_EVENT_LOST).grant, grant);
    ck_assert_int_eq(next_event(LB_EVENT_ANSWER).result, -ENOTCONN);
    ck_assert_int_eq(next_event(LB_EVENT_DISCONNECTED).result, -ENOTCONN);
}
END_TEST

START_TEST(a_grant_is_checked_in_time)
{
    struct lb_grant *grant = grant_key(1000, 950);
    int64_t started_ms = scripted_now_ms();
    const char *line = "";
    char answer[256];
    int64_t id;

    while (!strstr(line, "\"op\":\"check\"")) {
        (void)poll(NULL, 0, lb_timeout_ms(client));
        line = heard();
    }
    ck_assert_int_ge(scripted_now_ms() - started_ms, 150);
    ck_assert_ptr_nonnull(strstr(line, "\"fence\":7"));
    id = strtoll(strstr(line, "\"id\":") + 5, NULL, 10);
    ck_assert_str_eq(heard(), "");
    (void)snprintf(answer, sizeof(answer),
                   "{\"id\":%" PRId64 ",\"ok\":true,\"held\":true,\"fence\":7,"
                   "\"deadline_ms\":%" PRId64 "}\n",
                   id, started_ms + 60000);
    tell(answer);
    ck_assert_int_eq(lb_grant_deadline_ms(grant), started_ms + 60000);
    no_event();
}
END_TEST

START_TEST(a_check_that_finds_nothing_is_a_loss)
{
    struct lb_grant *grant = grant_key(1000, 10);
    char answer[128];
    const char *line = "";

    while (!strstr(line, "\"op\":\"check\""))
        line = heard();
    (void)snprintf(answer, sizeof(answer), "{\"id\":%lld,\"ok\":true,\"held\":false}\n",
                   strtoll(strstr(line, "\"id\":") + 5, NULL, 10));
    tell(answer);
    ck_assert_ptr_eq(next_event(LB_EVENT_LOST).grant, grant);
    ck_assert_int_eq(lb_check(grant), LB_E_NOT_HELD);
}
END_TEST

START_TEST(a_dropped_grant_is_given_back_by_name)
{
    struct lb_grant *grant = grant_key(30000, 29000);
    const char *line;

    lb_drop(grant);
    line = heard();
    ck_assert_ptr_nonnull(strstr(line, "\"op\":\"release\""));
    ck_assert_ptr_nonnull(strstr(line, "\"fence\":7"));
    tell("{\"event\":\"lost\",\"key\":\"k\",\"fence\":7,\"deadline_ms\":1,\"reason\":\"x\"}\n");
    no_event();
}
END_TEST

START_TEST(a_cancelled_acquire_is_answered)
{
    uint64_t call;
    char line[128];

    ck_assert_int_eq(lb_acquire_start(client, "k", NULL, &call), 0);
    ck_assert_int_eq(lb_cancel(client, call + 1), LB_E_NOT_PENDING);
    ck_assert_int_eq(lb_cancel(client, call), 0);
    ck_assert_ptr_nonnull(strstr(heard(), "\"op\":\"cancel\""));
    (void)snprintf(line, sizeof(line),
                   "{\"id\":%" PRIu64 ",\"ok\":false,\"error\":\"cancelled\",\"message\":\"m\"}\n",
                   call);
    tell(line);
    ck_assert_int_eq(next_event(LB_EVENT_ANSWER).result, LB_E_CANCELLED);
    ck_assert_str_eq(lb_last_message(client), "m");
    ck_assert_int_eq(lb_cancel(client, call), LB_E_NOT_PENDING);
}
END_TEST

START_TEST(a_forked_child_may_not_use_it)
{
    struct lb_grant *grant = grant_key(30000, 29000);
    uint64_t call;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct lb_event event;
        bool right = lb_acquire_start(client, "j", NULL, &call) == -ECHILD &&
                     lb_dispatch(client) == -ECHILD && lb_check(grant) == -ECHILD &&
                     !lb_valid(grant) && !lb_next_event(client, &event);

        lb_close(client);
        _exit(right ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(lb_valid(grant));
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(what_cannot_be_written_at_once_is_written_later)
{
    char note[257];
    struct lb_acquire_options options = {.size = sizeof(options), .note = note};
    size_t asked = 0;
    size_t heard_lines = 0;
    uint64_t call;
    int r;

    memset(note, 'n', sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    while ((r = lb_acquire_start(client, "k", &options, &call)) == 0) {
        asked++;
        (void)lb_dispatch(client);
    }
    ck_assert_int_eq(r, -ENOMEM);
    ck_assert_int_eq(lb_poll_events(client), POLLIN | POLLOUT);
    for (const char *text = heard(); text[0]; text = heard()) {
        for (; *text; text++)
            heard_lines += *text == '\n';
    }
    ck_assert_uint_eq(heard_lines, asked);
    ck_assert_int_eq(lb_poll_events(client), POLLIN);
}
END_TEST

Suite *client_suite(void)
{
    Suite *suite = suite_create("client/client");
    TCase *tcase = tcase_create("client");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_grant_is_told_as_an_event);
    tcase_add_test(tcase, options_reach_the_wire);
    tcase_add_test(tcase, unusable_arguments_are_refused);
    tcase_add_test(tcase, notices_become_events_and_unknown_things_nothing);
    tcase_add_test(tcase, a_newer_notice_takes_the_place_of_an_older);
    tcase_add_loop_test(tcase, garbage_ends_the_connection, 0, 8);
    tcase_add_test(tcase, a_line_without_end_ends_the_connection);
    tcase_add_test(tcase, grants_outlive_the_connection_up_to_their_deadline);
    tcase_add_test(tcase, a_loss_told_right_before_the_end_is_read);
    tcase_add_test(tcase, a_write_that_fails_reads_what_is_left);
    tcase_add_test(tcase, a_grant_is_checked_in_time);
    tcase_add_test(tcase, a_check_that_finds_nothing_is_a_loss);
    tcase_add_test(tcase, a_dropped_grant_is_given_back_by_name);
    tcase_add_test(tcase, a_cancelled_acquire_is_answered);
    tcase_add_test(tcase, a_forked_child_may_not_use_it);
    tcase_add_test(tcase, what_cannot_be_written_at_once_is_written_later);
    suite_add_tcase(suite, tcase);
    return suite;
}
