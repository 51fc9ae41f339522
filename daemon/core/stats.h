// Counters and histograms of the broker's work.
#ifndef LB_CORE_STATS_H
#define LB_CORE_STATS_H

#include <stdint.h>

#include "proto/message.h"

#define STATS_BOUNDS 16

struct histogram {
    int64_t counts[STATS_BOUNDS + 1];
    int64_t sum;
};

struct stats {
#define X(name) int64_t name;
#include "daemon/core/stats.def"
#undef X
    struct histogram wait_ms;         // from the acquire's arrival to its grant
    struct histogram hold_ms;         // from the grant to its end
    struct histogram renewal_late_ms; // sent this much later than at a third of the ttl
};

#define X(name) +1
enum {
    STATS_COUNTERS = 0
#include "daemon/core/stats.def"
};
#undef X

// Adds one observation, in ms.
void histogram_add(struct histogram *histogram, int64_t value);

// The histogram as a page of the `stats` reply; borrowed from `histogram`.
struct stat_histogram histogram_view(const struct histogram *histogram, const char *name);

// The counters by name, in the order of stats.def.
void stats_list(const struct stats *stats, struct stat_value ret_values[STATS_COUNTERS]);

#endif
