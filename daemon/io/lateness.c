// Says when the loop is late, now and then. It may not read a clock: the pump has read it already.
#include "daemon/io/lateness.h"

#include "daemon/base/log.h"

static void lateness_tell(struct lateness *lateness, int64_t late_ms)
{
    struct log_line line;

    log_begin(&line, LOG_LEVEL_WARNING, "late");
    log_number(&line, "ms", late_ms);
    if (lateness->untold > 0)
        log_number(&line, "not_logged", lateness->untold);
    log_text(&line, "message", "the broker had no processor for so long: leases may be lost by it");
    log_end(&line);
}

void lateness_note(struct lateness *lateness, int64_t due_ms, int64_t now_ms)
{
    int64_t late_ms = now_ms - due_ms;

    if (late_ms < LATENESS_ALARM_MS || due_ms == lateness->noted_ms)
        return;
    lateness->noted_ms = due_ms;
    lateness->count++;
    if (late_ms > lateness->most_ms)
        lateness->most_ms = late_ms;
    if (lateness->told_ms && now_ms - lateness->told_ms < LATENESS_GAP_MS) {
        lateness->untold++;
        return;
    }
    lateness_tell(lateness, late_ms);
    lateness->told_ms = now_ms;
    lateness->untold = 0;
}
