// Who holds a lock, in words.
#ifndef LB_CLI_HOLDER_H
#define LB_CLI_HOLDER_H

#include <stddef.h>

#include "proto/message.h"

#define HOLDER_BYTES_MAX 4096

// Writes a phrase such as `pid 4711 of uid 0 (lockbroker run), "nightly backup", for 3m 5s`. What
// others chose in it is escaped.
void holder_describe(const struct holder *holder, char *target, size_t size);

// The same of somebody who just ceased to hold it: `..., which held it for 3m 5s`.
void holder_describe_former(const struct holder *holder, char *target, size_t size);

#endif
