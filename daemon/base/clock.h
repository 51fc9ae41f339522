// The only reader of the clock that leases are measured by.
#ifndef LB_BASE_CLOCK_H
#define LB_BASE_CLOCK_H

#include <stdint.h>

// CLOCK_BOOTTIME in milliseconds. It counts on in suspend, as Redis does; CLOCK_MONOTONIC, which
// libuv's timers use, stands still.
int64_t clock_now_ms(void);

#endif
