// Allocations that fail on demand.
#ifndef LB_TESTS_UNIT_MEMORY_ALLOC_H
#define LB_TESTS_UNIT_MEMORY_ALLOC_H

#include <stdbool.h>

// Makes the next malloc() of the program under test fail, once.
void alloc_fail_next(void);

// Whether it has happened.
bool alloc_has_failed(void);

#endif
