// Makes allocations of the code under test fail on purpose. The binary is linked with --wrap for
// malloc and calloc; only what is allocated between arming and disarming counts.
#ifndef LB_TESTS_CORE_FAULT_H
#define LB_TESTS_CORE_FAULT_H

// The allocation after `count` good ones fails, and those after it succeed again; -1: none fails.
// Counting starts anew.
void fault_set(long count);

// How many allocations there were since fault_set().
long fault_count(void);

void fault_arm(void);
void fault_disarm(void);

#endif
