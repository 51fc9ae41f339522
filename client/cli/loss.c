// The reasons of losses and doubts as people read them. The codes are the broker's, which may be
// newer than this tool and have more of them: whoever prints a clause prints the code as well.
#include "client/cli/loss.h"

#include <stddef.h>
#include <string.h>

#include "proto/macros.h"

struct loss_reason {
    const char *code;
    const char *clause;
};

static const struct loss_reason loss_reasons[] = {
    {"expired", "Redis did not confirm its renewal in time"},
    {"deleted", "its key was deleted from Redis"},
    {"stolen", "its key in Redis was overwritten by somebody else"},
    {"max_hold", "it was held for as long as it may be"},
    {"broken", "it was broken by force"},
    {"not_renewed", "its lease ended and was not to be renewed"},
    {"shutdown", "the broker is going down"},
    {"not_held", "the broker does not know of it any more"},
    {"disconnected", "the broker is gone and its lease ends"},
    {LOSS_UNCONFIRMED, "the broker has not confirmed it for too long and its lease ends"},
};

static const struct loss_reason loss_doubts[] = {
    {"no_answer", "Redis does not answer"},
    {"down", "Redis cannot be reached"},
    {"restarted", "Redis was restarted and may have lost it"},
    {"clock", "the clock of Redis jumped ahead, and the lease ends sooner"},
};

static const char *loss_find(const struct loss_reason *reasons, size_t count, const char *code)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(reasons[i].code, code) == 0)
            return reasons[i].clause;
    }
    return "for a reason that this version does not know";
}

const char *loss_clause(const char *reason)
{
    return loss_find(loss_reasons, LB_ARRAY_LENGTH(loss_reasons), reason);
}

const char *loss_doubt_clause(const char *reason)
{
    return loss_find(loss_doubts, LB_ARRAY_LENGTH(loss_doubts), reason);
}
