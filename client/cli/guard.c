// One loop over three things: signals (a signalfd, so that none is lost between a look and a wait),
// the broker's socket, and a timer on CLOCK_BOOTTIME, which also goes on in suspend. The deadline
// that counts is the last one that the broker told: a broker that is stopped, hanging or gone is
// told apart from a healthy one by nothing else.
#include "client/cli/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/child.h"
#include "client/cli/duration.h"
#include "client/cli/guard_signals.h"
#include "client/cli/loss.h"
#include "client/cli/message.h"
#include "client/cli/terminal.h"

// How long the answer to a question that was only just sent is waited for past the time to stop: it
// is sent late when this process itself was stopped.
#define GUARD_ANSWER_MS 200
// How often to look whether the rest of a group has gone: nothing tells the end of a process that
// is nobody's child here.
#define GUARD_GROUP_POLL_MS 10
#define GUARD_RECHECK_MS    1000

struct guard {
    struct lb_client *client;
    struct lb_grant *grant;
    struct terminal terminal;
    struct guard_signals signals;
    int timer_fd;
    pid_t child; // and the name of its group
    int status;
    bool has_ended; // the command itself
    bool must_stop; // we were told, or decided, that the lock is lost
    bool was_killed;
    bool was_disconnected;
    bool is_in_doubt;   // and that was said
    bool stop_is_asked; // somebody sent us SIGTSTP
    int64_t kill_at_ms;
};

int64_t guard_margin_ms(int64_t ttl_ms)
{
    int64_t margin_ms = ttl_ms / 10;

    if (margin_ms < 100)
        margin_ms = 100;
    return margin_ms < 3000 ? margin_ms : 3000;
}

// Later than a broker that still speaks tells a loss, so that its word comes first, and early
// enough for SIGKILL after half of the rest. A question asked later than that says that we were
// stopped ourselves: its answer is waited for, but not past a deadline that has not passed yet.
int64_t guard_stop_at_ms(int64_t deadline_ms, int64_t ttl_ms, int64_t asked_ms)
{
    int64_t margin_ms = guard_margin_ms(ttl_ms);
    int64_t stop_at_ms = deadline_ms - margin_ms / 2;
    int64_t latest_ms = deadline_ms - margin_ms / 4;

    if (asked_ms == LB_NONE || asked_ms < stop_at_ms)
        return stop_at_ms;
    if (asked_ms >= deadline_ms || asked_ms + GUARD_ANSWER_MS < latest_ms)
        return asked_ms + GUARD_ANSWER_MS;
    return latest_ms;
}

// ---- the end of the lock ----

static void guard_signal_group(const struct guard *guard, int signal)
{
    (void)kill(-guard->child, signal);
}

static void guard_stop_command(struct guard *guard, const char *reason)
{
    int64_t now_ms = client_now_ms();
    int64_t left_ms = lb_grant_deadline_ms(guard->grant) - now_ms;

    if (guard->must_stop || guard->has_ended)
        return;
    guard->must_stop = true;
    guard->kill_at_ms = left_ms > 0 ? now_ms + left_ms / 2 : now_ms;
    message_print("the lock '%s' is lost: %s (%s); the command is stopped",
                  lb_grant_key(guard->grant), loss_clause(reason), reason);
    guard_signal_group(guard, SIGTERM);
    guard_signal_group(guard, SIGCONT);
}

static int64_t guard_stop_at(const struct guard *guard)
{
    const struct lb_grant *grant = guard->grant;

    return guard_stop_at_ms(grant->deadline_ms, grant->ttl_ms,
                            grant->check ? grant->check->sent_ms : LB_NONE);
}

static void guard_tell_doubt(struct guard *guard)
{
    const char *key = lb_grant_key(guard->grant);
    int64_t left_ms = lb_grant_deadline_ms(guard->grant) -
                      guard_margin_ms(lb_grant_ttl_ms(guard->grant)) - client_now_ms();
    char left[DURATION_BYTES_MAX];

    guard->is_in_doubt = true;
    duration_format_up(left_ms > 0 ? left_ms : 0, left, sizeof(left));
    message_print("the lease of '%s' is not confirmed (%s); the command is stopped in %s unless "
                  "that changes",
                  key, loss_doubt_clause(lb_grant_suspect_reason(guard->grant)), left);
}

static void guard_take_event(struct guard *guard, enum lb_event_kind kind)
{
    if (kind == LB_EVENT_LOST)
        guard_stop_command(guard, lb_grant_lost_reason(guard->grant));
    if (guard->must_stop || guard->has_ended)
        return;
    if (kind == LB_EVENT_SUSPECT)
        guard_tell_doubt(guard);
    if (kind == LB_EVENT_OK && guard->is_in_doubt) {
        guard->is_in_doubt = false;
        message_print("the lease of '%s' is confirmed again", lb_grant_key(guard->grant));
    }
}

static void guard_tell_disconnected(struct guard *guard)
{
    int64_t left_ms = guard_stop_at(guard) - client_now_ms();
    char left[DURATION_BYTES_MAX];

    if (guard->was_disconnected || guard->must_stop || guard->has_ended)
        return;
    guard->was_disconnected = true;
    duration_format(left_ms > 0 ? left_ms : 0, left, sizeof(left));
    message_print("the broker is gone (%s); the lock '%s' stays ours for a while: the command is "
                  "stopped in %s unless it ends before",
                  lb_error_text(guard->client->error), lb_grant_key(guard->grant), left);
}

static void guard_tend_lock(struct guard *guard)
{
    struct lb_event event;
    int r = lb_dispatch(guard->client);

    while (lb_next_event(guard->client, &event))
        guard_take_event(guard, event.kind);
    if (r != 0)
        guard_tell_disconnected(guard);
    if (!guard->must_stop && client_now_ms() >= guard_stop_at(guard))
        guard_stop_command(guard, r != 0 ? "disconnected" : LOSS_UNCONFIRMED);
}

static bool guard_group_is_gone(const struct guard *guard)
{
    return guard->has_ended && kill(-guard->child, 0) != 0;
}

static void guard_tend_command(struct guard *guard)
{
    if (!guard->must_stop || guard->was_killed || client_now_ms() < guard->kill_at_ms)
        return;
    guard->was_killed = true;
    if (!guard_group_is_gone(guard))
        guard_signal_group(guard, SIGKILL);
}

static bool guard_is_done(const struct guard *guard)
{
    if (!guard->has_ended)
        return false;
    return !guard->must_stop || guard->was_killed || guard_group_is_gone(guard);
}

// ---- stopping and going on ----

// The command was stopped from the terminal, or with us: stop too, so that the shell sees its job
// stop, and take the command along when we are continued. Before it runs on, the lock is looked at.
static void guard_suspend(struct guard *guard, int signal)
{
    bool with_group = terminal_is_with(&guard->terminal, guard->child);

    guard->stop_is_asked = false;
    guard_signals_stop_self(signal, with_group);
    if (guard->terminal.was_given || signal != SIGTSTP)
        terminal_give(&guard->terminal, guard->child);
    (void)lb_dispatch(guard->client);
    if (client_now_ms() >= guard_stop_at(guard) && lb_grant_state(guard->grant) != LB_GRANT_LOST &&
        client_check(guard->grant, GUARD_RECHECK_MS) != 0)
        guard_stop_command(guard, LOSS_UNCONFIRMED);
    guard_tend_lock(guard);
    guard_signal_group(guard, SIGCONT);
}

static void guard_child_stopped(struct guard *guard, int signal)
{
    bool from_terminal = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;

    if (guard->must_stop) {
        guard_signal_group(guard, SIGCONT);
    } else if (wants_terminal && terminal_is_with(&guard->terminal, guard->terminal.own_group)) {
        terminal_give(&guard->terminal, guard->child);
        guard_signal_group(guard, SIGCONT);
    } else if (from_terminal && (guard->terminal.fd >= 0 || guard->stop_is_asked)) {
        guard_suspend(guard, signal);
    }
}

static void guard_reap(struct guard *guard)
{
    int status;

    while (!guard->has_ended && waitpid(guard->child, &status, WNOHANG | WUNTRACED) > 0) {
        if (WIFSTOPPED(status)) {
            guard_child_stopped(guard, WSTOPSIG(status));
        } else {
            guard->has_ended = true;
            guard->status = status;
        }
    }
}

static void guard_take_signal(struct guard *guard, const struct signalfd_siginfo *info)
{
    int signal = (int)info->ssi_signo;

    if (signal == SIGCHLD) {
        guard_reap(guard);
        return;
    }
    if (guard->has_ended || !guard_signals_is_for_command(info))
        return;
    if (signal == SIGTSTP)
        guard->stop_is_asked = true;
    if (signal == SIGCONT)
        guard_tend_lock(guard);
    guard_signal_group(guard, signal);
}

// ---- the loop ----

static void guard_arm_timer(const struct guard *guard)
{
    int timeout_ms = lb_timeout_ms(guard->client);
    int64_t now_ms = client_now_ms();
    struct itimerspec at = {0};
    int64_t due_ms;

    if (guard->must_stop && guard->has_ended)
        due_ms = now_ms + GUARD_GROUP_POLL_MS;
    else if (guard->must_stop)
        due_ms = guard->was_killed ? INT64_MAX : guard->kill_at_ms;
    else
        due_ms = guard_stop_at(guard);
    if (timeout_ms >= 0 && now_ms + timeout_ms < due_ms)
        due_ms = now_ms + timeout_ms;
    if (due_ms != INT64_MAX) {
        at.it_value.tv_sec = due_ms > 0 ? due_ms / 1000 : 0;
        at.it_value.tv_nsec = due_ms > 0 ? due_ms % 1000 * 1000000 + 1 : 1;
    }
    (void)timerfd_settime(guard->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void guard_wait(struct guard *guard)
{
    struct pollfd fds[] = {
        {.fd = guard->signals.fd, .events = POLLIN},
        {.fd = guard->timer_fd, .events = POLLIN},
        {.fd = lb_fd(guard->client), .events = lb_poll_events(guard->client)},
    };
    struct signalfd_siginfo info;
    uint64_t expirations;

    guard_arm_timer(guard);
    if (poll(fds, LB_ARRAY_LENGTH(fds), -1) < 0)
        return;
    if (read(guard->timer_fd, &expirations, sizeof(expirations)) < 0)
        lb_assert(errno == EAGAIN || errno == EINTR);
    while (guard_signals_next(&guard->signals, &info))
        guard_take_signal(guard, &info);
}

static void guard_loop(struct guard *guard)
{
    while (!guard_is_done(guard)) {
        guard_tend_lock(guard);
        guard_tend_command(guard);
        guard_wait(guard);
    }
    terminal_take_back(&guard->terminal, guard->child);
}

static int guard_start(struct guard *guard, char **command, bool inherit)
{
    struct child_plan plan = {
        .command = command,
        .broker_fd = inherit ? lb_fd(guard->client) : -1,
        .terminal = terminal_is_ours_alone(&guard->terminal) ? &guard->terminal : NULL,
        .signal_mask = &guard->signals.old_mask,
        .child_action = &guard->signals.old_child_action,
    };

    guard->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (guard->timer_fd < 0)
        return -errno;
    return child_spawn(&plan, &guard->child);
}

int guard_run(struct lb_client *client, struct lb_grant *grant, char **command, bool inherit,
              struct guard_result *ret_result)
{
    struct guard guard = {.client = client, .grant = grant, .timer_fd = -1};
    int r = guard_signals_init(&guard.signals);

    if (r != 0)
        return r;
    terminal_init(&guard.terminal);
    r = guard_start(&guard, command, inherit);
    if (r == 0) {
        guard_loop(&guard);
        ret_result->status = guard.status;
        ret_result->was_lost = guard.must_stop;
    }
    if (guard.timer_fd >= 0)
        close(guard.timer_fd);
    terminal_deinit(&guard.terminal);
    guard_signals_deinit(&guard.signals);
    return r;
}
