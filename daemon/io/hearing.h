// From the channel into the broker. A hint is stepped at once, while its key is there, and one for
// which there is no memory is dropped: polling stands behind all of them. Whether the channel is up
// is told again until the broker knows.
#ifndef LB_IO_HEARING_H
#define LB_IO_HEARING_H

#include <stdbool.h>

#include "daemon/core/event.h"
#include "daemon/io/pump.h"

// Zeroed but for the pump, it is that of a channel that is down.
struct hearing {
    struct pump *pump;
    bool is_up;      // the channel is
    bool is_told_up; // what the broker believes
};

// The signature is that of the channel's post callback; `context` is the hearing. The pump may not
// be running.
void hearing_take(void *context, const struct event *event);

// Tells the broker what it could not be told before. Called once a loop turn.
void hearing_retry(struct hearing *hearing);

#endif
