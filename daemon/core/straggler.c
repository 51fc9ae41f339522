// Comparing times of two clocks, each with its own kind.
#include "daemon/core/straggler.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct time_limit time_limit_later(struct time_limit a, struct time_limit b)
{
    if (!a.is_set || !b.is_set)
        return a.is_set ? a : b;
    a.server_ms = later(a.server_ms, b.server_ms);
    a.local_ms = later(a.local_ms, b.local_ms);
    return a;
}

int64_t time_limit_left_ms(const struct time_limit *limit, int64_t now_ms)
{
    return limit->is_set ? later(limit->local_ms - now_ms, 0) : 0;
}

bool time_limit_is_over(const struct time_limit *limit, int64_t server_ms, int64_t now_ms,
                        int64_t patience_ms)
{
    return !limit->is_set || server_ms > limit->server_ms || now_ms > limit->local_ms + patience_ms;
}
