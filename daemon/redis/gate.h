// Keeps a fault that lasts from filling the log: a line goes out when its reason is a new one, and
// then at most once a minute.
#ifndef LB_REDIS_GATE_H
#define LB_REDIS_GATE_H

#include <stdbool.h>
#include <stdint.h>

#define GATE_REASON_BYTES_MAX 127
#define GATE_SAME_MS          60000
#define GATE_OTHER_MS         1000

// Zeroed is a gate that has let nothing through yet.
struct gate {
    bool is_used;
    int64_t last_ms;
    int64_t held_back;
    char reason[GATE_REASON_BYTES_MAX + 1]; // of the last line
};

// True when a line with that reason may go out now; *ret_held_back is then how many did not since
// the last one. Reasons that alternate pass once a second.
bool gate_pass(struct gate *gate, const char *reason, int64_t now_ms, int64_t *ret_held_back);

// The fault is over: the next line goes out at once.
void gate_reset(struct gate *gate);

#endif
