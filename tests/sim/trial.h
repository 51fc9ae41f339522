// One seed in a process of its own, so that neither a failed assertion nor a crash of the code
// under test ends more than that; and the search for the least that still fails.
#ifndef LB_TESTS_SIM_TRIAL_H
#define LB_TESTS_SIM_TRIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/sim/sim.h"

struct trial {
    uint64_t seed;
    uint64_t operations; // how many to run
    bool is_masked[FAULTS];
    bool is_choosy; // only those that are chosen happen, and often
    bool is_chosen[FAULTS];
};

// What came of trials, added up.
struct tally {
    uint64_t seeds, operations, actions;
    uint64_t granted, handed_on, turns, lost, suspected, recovered, released, stale;
    uint64_t fired[FAULTS];
    uint64_t hash; // of the last seed's story, when it was told or hashed
    uint64_t events_to_violation;
    uint64_t operations_to_violation;
    char violation[512]; // "": none
};

// Runs it in this process. False when an invariant was violated. The story goes to `story` unless
// that is NULL.
bool trial_run(const struct trial *trial, FILE *story, bool is_hashed, struct tally *tally);

// Runs it in a child and tells whether it failed, by a violation or by the child's death.
bool trial_fails(const struct trial *trial);

// Takes away from a failing trial whatever it does not need to fail: operations, kinds of faults.
void trial_shrink(struct trial *trial);

// Tells the end of its story, and the command that runs it again.
void trial_report(const struct trial *trial, const char *program);

#endif
