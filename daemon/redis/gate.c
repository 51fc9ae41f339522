// Decides which log lines go out. It may not write them: it does not know what they say.
#include "daemon/redis/gate.h"

#include <stdio.h>
#include <string.h>

bool gate_pass(struct gate *gate, const char *reason, int64_t now_ms, int64_t *ret_held_back)
{
    bool is_same = strncmp(gate->reason, reason, GATE_REASON_BYTES_MAX) == 0;
    int64_t gap_ms = is_same ? GATE_SAME_MS : GATE_OTHER_MS;

    if (gate->is_used && now_ms - gate->last_ms < gap_ms) {
        gate->held_back++;
        return false;
    }
    *ret_held_back = gate->held_back;
    gate->is_used = true;
    gate->last_ms = now_ms;
    gate->held_back = 0;
    (void)snprintf(gate->reason, sizeof(gate->reason), "%s", reason);
    return true;
}

void gate_reset(struct gate *gate)
{
    *gate = (struct gate){0};
}
