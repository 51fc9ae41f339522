// Counting only: nothing here changes what the broker does.
#include "daemon/core/stats.h"

// Upper bounds in ms, about a factor of three apart: fine enough to tell a hand-off from a round
// trip, a round trip from a poll, and a poll from a lease.
static const int64_t bounds[STATS_BOUNDS] = {
    0, 1, 3, 10, 30, 100, 300, 1000, 3000, 5000, 10000, 30000, 100000, 300000, 1000000, 3600000};

void histogram_add(struct histogram *histogram, int64_t value)
{
    int i = 0;

    while (i < STATS_BOUNDS && value > bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += value;
}

struct stat_histogram histogram_view(const struct histogram *histogram, const char *name)
{
    struct stat_histogram view = {
        .name = name,
        .bounds = bounds,
        .counts = histogram->counts,
        .bounds_count = STATS_BOUNDS,
        .sum = histogram->sum,
    };

    return view;
}

void stats_list(const struct stats *stats, struct stat_value ret_values[STATS_COUNTERS])
{
    int i = 0;

#define X(counter) ret_values[i++] = (struct stat_value){.name = #counter, .value = stats->counter};
#include "daemon/core/stats.def"
#undef X
}
