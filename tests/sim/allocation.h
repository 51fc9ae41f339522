// Allocations of the code under test that fail by chance.
#ifndef LB_TESTS_SIM_ALLOCATION_H
#define LB_TESTS_SIM_ALLOCATION_H

#include "tests/sim/sim.h"

// From now on, and until NULL is given, each malloc and calloc has its chance to fail.
void allocation_may_fail(struct sim *sim);

#endif
