// Who holds a lock, in words.
#ifndef LB_CLI_HOLDER_H
#define LB_CLI_HOLDER_H

#include <stddef.h>

#include "proto/message.h"

#define HOLDER_BYTES_MAX 1024

// Writes a phrase such as `pid 4711 of uid 0 (lockbroker run), "nightly backup", since 3m 5s`.
void holder_describe(const struct holder *holder, char *target, size_t size);

#endif
