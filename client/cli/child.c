// Starting the command. The order in the child matters: its group and its parent-death signal stand
// before anything of the command runs, so that there is no moment in which our death leaves it
// unwatched without a signal.
#include "client/cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/cli/exit_code.h"
#include "client/cli/message.h"

// Scripts use the low numbers for their own redirections: `exec 3>file` would close the socket.
#define CHILD_BROKER_FD_MIN 100

static void child_keep_socket(int fd)
{
    if (fd < 0 || fcntl(fd, F_DUPFD, CHILD_BROKER_FD_MIN) >= 0)
        return;
    (void)fcntl(fd, F_SETFD, 0);
}

static void child_exec(const struct child_plan *plan, pid_t parent)
{
    int error;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_CODE_SIGNAL + SIGTERM);
    if (plan->terminal)
        terminal_give(plan->terminal, getpid());
    child_keep_socket(plan->broker_fd);
    (void)sigaction(SIGCHLD, plan->child_action, NULL);
    (void)sigprocmask(SIG_SETMASK, plan->signal_mask, NULL);
    (void)execvp(plan->command[0], plan->command);
    error = errno;
    message_print("cannot run '%s': %s", plan->command[0], strerror(error));
    _exit(error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_NOT_EXECUTABLE);
}

int child_spawn(const struct child_plan *plan, pid_t *ret_pid)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0)
        child_exec(plan, parent);
    // Also here, so that the group exists whichever of the two is first.
    (void)setpgid(pid, pid);
    if (plan->terminal)
        plan->terminal->was_given = true;
    *ret_pid = pid;
    return 0;
}
