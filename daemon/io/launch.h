// How the daemon was started: its command line, and the configuration that follows from it.
#ifndef LB_IO_LAUNCH_H
#define LB_IO_LAUNCH_H

#include <stdbool.h>

#include "config/config.h"
#include "proto/macros.h"

// Borrowed from argv. Precedence: the file, then `assignments` in order, then the two flags.
struct launch {
    const char *config_path; // NULL: the default file, if it exists
    const char *socket;      // NULL: not given
    const char *backend;     // NULL: not given
    char **assignments;      // "key=value", of --set
    int assignments_count;
};

// Makes the configuration in force. Returns 0, or a negative errno with `ret_error` filled and
// `ret_config` untouched.
int launch_config(const struct launch *launch, struct config *ret_config,
                  struct config_error *ret_error) LB_MUST_CHECK;

// Checks what the options point to: the password file and the group. A socket that the service
// manager made needs no group, but a name that is none is a mistake all the same. Returns 0, or a
// negative errno with `ret_error` filled.
int launch_check(const struct config *config, struct config_error *ret_error) LB_MUST_CHECK;

#endif
