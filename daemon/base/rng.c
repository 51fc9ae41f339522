// xoshiro256**, its state filled by splitmix64. It may not read a clock or the system's entropy:
// runs of the core must be repeatable from their seed.
#include "daemon/base/rng.h"

static uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rng_init(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix_next(&seed);
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t *state = rng->state;
    uint64_t result = rotate_left(state[1] * 5, 7) * 9;
    uint64_t shifted = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate_left(state[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    uint64_t excess, number;

    if (bound <= 1)
        return 0;
    // Numbers below 2^64 mod bound would make small results likelier than others.
    excess = -bound % bound;
    do {
        number = rng_next(rng);
    } while (number < excess);
    return number % bound;
}
