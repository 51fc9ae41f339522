// The arithmetic of leases. It knows no clock: every time is an argument, so that each formula can
// be tested to the millisecond.
#include "daemon/core/lease.h"

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    if (value < least)
        return least;
    return value > most ? most : value;
}

int64_t lease_deadline(int64_t sent_ms, int64_t ttl_ms)
{
    return sent_ms + ttl_ms - ttl_ms / 100 - 2 - lease_step_tolerance(ttl_ms);
}

int64_t lease_step_tolerance(int64_t ttl_ms)
{
    return clamp(ttl_ms / 20, 0, 500);
}

// Up to 10 s the tolerance is a twentieth of the ttl, above it is fixed. Rounded up.
int64_t lease_ttl_until(int64_t sent_ms, int64_t deadline_ms)
{
    int64_t ttl_ms = (deadline_ms - sent_ms + 2) * 100 / 94;

    if (ttl_ms > 10000)
        ttl_ms = (deadline_ms - sent_ms + 502) * 100 / 99;
    while (lease_deadline(sent_ms, ttl_ms) < deadline_ms)
        ttl_ms++;
    return ttl_ms;
}

// A shorter lease is one that a renewal at this moment would have brought: what it promises is true
// of the longer one.
struct lease lease_inherit(const struct lease *lease, int64_t now_ms, int64_t ttl_ms)
{
    struct lease inherited = *lease;
    int64_t deadline_ms = lease_deadline(now_ms, ttl_ms);

    if (deadline_ms > lease->deadline_ms)
        return inherited;
    inherited.sent_ms = now_ms;
    inherited.ttl_ms = ttl_ms;
    inherited.deadline_ms = deadline_ms;
    return inherited;
}

int64_t lease_margin(int64_t ttl_ms)
{
    return clamp(ttl_ms / 10, 100, 3000);
}

int64_t lease_renew_at(const struct lease *lease)
{
    return lease->sent_ms + lease->ttl_ms / 3;
}

int64_t lease_renew_slack(int64_t ttl_ms)
{
    return ttl_ms / 12;
}

int64_t lease_suspect_at(const struct lease *lease)
{
    return lease->sent_ms + lease->ttl_ms / 2;
}

int64_t lease_command_timeout(int64_t ttl_ms)
{
    return clamp(ttl_ms / 15, 250, 2000);
}

int64_t lease_retry_pause(int64_t ttl_ms)
{
    return clamp(ttl_ms / 30, 20, 1000);
}
