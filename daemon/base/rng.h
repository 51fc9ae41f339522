// A small seeded generator for jitter: the same seed gives the same numbers on every machine. It is
// no source of secrets.
#ifndef LB_BASE_RNG_H
#define LB_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state[4];
};

// Any seed will do, 0 too.
void rng_init(struct rng *rng, uint64_t seed);

// The next number, 0..2^64-1.
uint64_t rng_next(struct rng *rng);

// A number in 0..bound-1, all equally likely; 0 when `bound` is 0 or 1.
uint64_t rng_below(struct rng *rng, uint64_t bound);

#endif
