// Versioned option structs of the public header.
#ifndef LB_CLIENT_OPTIONS_H
#define LB_CLIENT_OPTIONS_H

#include <stddef.h>

#include "proto/macros.h"

// Copies an option struct of `source_size` bytes, as its `size` says, into one of `target_size`:
// what it lacks becomes zero. Returns 0, -EINVAL when it has something set that is unknown here, or
// -EBADR when `source_size` is none.
int options_copy(void *target, size_t target_size, const void *source,
                 size_t source_size) LB_MUST_CHECK;

#endif
