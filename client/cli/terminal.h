// The controlling terminal, and which process group it listens to.
#ifndef LB_CLI_TERMINAL_H
#define LB_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd; // -1: there is none
    pid_t own_group;
    bool was_given; // to the command, at least once
};

void terminal_init(struct terminal *terminal);
void terminal_deinit(struct terminal *terminal);

// True when the command should have the terminal from its start: we are the whole of a foreground
// job whose input and output are the terminal. In a pipeline or a script others of our group need
// it too; then the command gets it once it asks.
bool terminal_is_ours_alone(const struct terminal *terminal);

// True when this group is the foreground group.
bool terminal_is_with(const struct terminal *terminal, pid_t group);

// Makes the group the foreground group if ours is that now. SIGTTOU must be blocked.
void terminal_give(struct terminal *terminal, pid_t group);

// Makes our group the foreground group again if `group` is that now.
void terminal_take_back(struct terminal *terminal, pid_t group);

#endif
