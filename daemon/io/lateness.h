// An alarm for a loop that comes to its work late: a busy processor, swapping, a process that was
// stopped. Leases are safe all the same, but get lost by it.
#ifndef LB_IO_LATENESS_H
#define LB_IO_LATENESS_H

#include <stdint.h>

// So late is late: half of the margin of the shortest lease.
#define LATENESS_ALARM_MS 50

// Time between two log lines.
#define LATENESS_GAP_MS 10000

struct lateness {
    int64_t count;    // turns that were late
    int64_t most_ms;  // the latest of them
    int64_t noted_ms; // what the last one was late for, so that it is counted once
    int64_t told_ms;  // when a line was logged, 0: never
    int64_t untold;   // late turns since then
};

// To be called at the beginning of each turn: `due_ms` is when the earliest of its work was due.
void lateness_note(struct lateness *lateness, int64_t due_ms, int64_t now_ms);

#endif
