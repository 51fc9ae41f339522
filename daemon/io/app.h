// The daemon as a whole: built up in order, run, and torn down in order.
#ifndef LB_IO_APP_H
#define LB_IO_APP_H

#include "config/config.h"
#include "daemon/io/launch.h"
#include "proto/macros.h"

// Runs until a signal ends it. Returns the exit code: 0 after a drain, 1 when it could not start;
// the reason is on standard error then.
int app_run(const struct launch *launch, const struct config *config) LB_MUST_CHECK;

#endif
