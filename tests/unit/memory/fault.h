// Calls of the kernel that fail, or do half of what they should, on demand.
#ifndef LB_TESTS_UNIT_MEMORY_FAULT_H
#define LB_TESTS_UNIT_MEMORY_FAULT_H

// The `first`-th `call` from now, one of those in fault.c, fails with the errno `error`; 0: it does
// half of what it is asked for. EINTR comes three times in a row.
void fault_call(const char *call, int error, int first);

#endif
