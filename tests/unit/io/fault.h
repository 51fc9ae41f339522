// A clock that jumps and memory that runs out, on demand.
#ifndef LB_TESTS_UNIT_IO_FAULT_H
#define LB_TESTS_UNIT_IO_FAULT_H

#include <stdbool.h>
#include <stdint.h>

// All clocks of the program under test go on from here by so much more.
void fault_clock_jump(int64_t ms);

// The same, but at the `reads`-th look at the clock from now.
void fault_clock_jump_at(int reads, int64_t ms);

// How often the clock has been looked at.
int fault_clock_reads(void);

// The `count`-th allocation from now fails, and with `forever` all after it. 0: none.
void fault_memory_fail(int count, bool forever);

// Whether an allocation has failed since then.
bool fault_memory_has_failed(void);

#endif
