// Talking to the service manager, by libsystemd.
#include "daemon/io/notify.h"

#include <systemd/sd-daemon.h>

#include "daemon/base/clock.h"

void notify_ready(void)
{
    (void)sd_notify(0, "READY=1");
}

void notify_reloading(void)
{
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_now_ms() * 1000);
}

void notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void notify_status(bool up, size_t owed)
{
    (void)sd_notifyf(0, "STATUS=backend %s, %zu locks", up ? "up" : "down", owed);
}

uint64_t notify_watchdog_ms(void)
{
    uint64_t usec;

    if (sd_watchdog_enabled(0, &usec) <= 0)
        return 0;
    return usec / 2000 > 0 ? usec / 2000 : 1;
}

void notify_watchdog(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}
