// Signals as a queue. Blocking them all makes their order and their time ours: no handler runs, no
// call is interrupted, and a signal that came before the command existed still reaches it.
#include "client/cli/guard_signals.h"

#include <errno.h>
#include <unistd.h>

#include "proto/macros.h"

static const int guard_signals_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

static void guard_signals_fill(sigset_t *set)
{
    struct sigaction action;

    (void)sigfillset(set);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(guard_signals_faults); i++)
        (void)sigdelset(set, guard_signals_faults[i]);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            (void)sigdelset(set, signal);
    }
    (void)sigaddset(set, SIGCHLD);
    // Blocked in any case: handing the terminal over from the background raises it.
    (void)sigaddset(set, SIGTTOU);
}

int guard_signals_init(struct guard_signals *signals)
{
    struct sigaction child_action = {.sa_handler = SIG_DFL};
    sigset_t set;

    guard_signals_fill(&set);
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0)
        return -errno;
    // An ignored SIGCHLD, as some parents leave it, would throw the exit status away.
    (void)sigaction(SIGCHLD, &child_action, &signals->old_child_action);
    (void)sigprocmask(SIG_BLOCK, &set, &signals->old_mask);
    return 0;
}

void guard_signals_deinit(struct guard_signals *signals)
{
    close(signals->fd);
    signals->fd = -1;
}

bool guard_signals_next(const struct guard_signals *signals, struct signalfd_siginfo *ret_info)
{
    return read(signals->fd, ret_info, sizeof(*ret_info)) == (ssize_t)sizeof(*ret_info);
}

bool guard_signals_is_for_command(const struct signalfd_siginfo *info)
{
    if (info->ssi_signo == SIGPIPE)
        return info->ssi_pid != (uint32_t)getpid();
    if (info->ssi_signo == SIGTTIN || info->ssi_signo == SIGTTOU)
        return info->ssi_code != SI_KERNEL;
    return true;
}

void guard_signals_stop_self(int signal, bool with_group)
{
    sigset_t set;

    if (sigpending(&set) == 0 && sigismember(&set, SIGCONT) == 1)
        return;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, signal);
    (void)kill(with_group ? 0 : getpid(), signal);
    // It is pending, and stops us here.
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}
