// The controlling terminal is handed to the command's process group while it runs, so that its keys
// reach the command as they would without us.
#include "client/cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_init(struct terminal *terminal)
{
    terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    terminal->own_group = getpgrp();
    terminal->was_given = false;
}

void terminal_deinit(struct terminal *terminal)
{
    if (terminal->fd >= 0)
        close(terminal->fd);
    terminal->fd = -1;
}

bool terminal_is_with(const struct terminal *terminal, pid_t group)
{
    return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == group;
}

bool terminal_is_ours_alone(const struct terminal *terminal)
{
    return terminal->own_group == getpid() && terminal_is_with(terminal, terminal->own_group) &&
           isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void terminal_give(struct terminal *terminal, pid_t group)
{
    if (!terminal_is_with(terminal, terminal->own_group))
        return;
    if (tcsetpgrp(terminal->fd, group) == 0)
        terminal->was_given = true;
}

void terminal_take_back(struct terminal *terminal, pid_t group)
{
    if (terminal_is_with(terminal, group))
        (void)tcsetpgrp(terminal->fd, terminal->own_group);
}
