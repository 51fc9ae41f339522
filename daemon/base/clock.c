// Reads CLOCK_BOOTTIME. Nothing else in the daemon may: the time is an argument everywhere else, so
// that the core can be driven by a test's clock.
#include "daemon/base/clock.h"

#include <time.h>

#include "proto/macros.h"

int64_t clock_now_ms(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_BOOTTIME, &now);

    lb_assert(rc == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
