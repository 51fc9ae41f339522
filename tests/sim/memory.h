// Memory of the simulator itself. The allocations of what is tested may be made to fail; these may
// not.
#ifndef LB_TESTS_SIM_MEMORY_H
#define LB_TESTS_SIM_MEMORY_H

#include <stddef.h>

// Zeroed memory, to be given back with free(). Never NULL.
void *sim_alloc(size_t size);

#endif
