// What happens to the world by itself: to Redis, to keys by others' hands, to hosts and processes.
#ifndef LB_TESTS_SIM_MISHAPS_H
#define LB_TESTS_SIM_MISHAPS_H

#include "tests/sim/world.h"

// A tenth of a second goes by: each kind of mishap has its chance.
void mishaps_tick(struct world *world);

#endif
