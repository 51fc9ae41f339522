// What is drawn or found once at the start: random ids, a seed, the host's name.
#ifndef LB_IO_IDENTITY_H
#define LB_IO_IDENTITY_H

#include <stdint.h>

#include "proto/limits.h"
#include "proto/macros.h"

#define IDENTITY_INSTANCE_BYTES 32 // 128 bits in hex

struct identity {
    char secret_instance[IDENTITY_INSTANCE_BYTES + 1]; // part of every token: never shown
    char public_instance[IDENTITY_INSTANCE_BYTES + 1]; // told by `hello`
    char host[LB_HOST_BYTES_MAX + 1];                  // letters, digits, '.', '-' and '_' only
    uint64_t seed;
};

// Returns 0 or a negative errno.
int identity_init(struct identity *identity) LB_MUST_CHECK;

#endif
