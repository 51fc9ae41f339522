// Claims: making one, and the times of a granted one.
#include "daemon/core/claim.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/lease.h"

struct claim *claim_new(const struct request *request, struct session *session, uint64_t id,
                        int64_t now_ms)
{
    size_t key_size = strlen(request->key) + 1;
    size_t owner_size = strlen(request->owner) + 1;
    size_t note_size = strlen(request->note) + 1;
    struct claim *claim = calloc(1, sizeof(*claim) + key_size + owner_size + note_size);

    if (!claim)
        return NULL;
    claim->session = session;
    claim->state = CLAIM_WAITING;
    claim->id = id;
    claim->renew = request->renew;
    claim->max_hold_ms = request->max_hold_ms;
    claim->arrived_ms = now_ms;
    claim->cap_ms = INT64_MAX;
    TAILQ_INIT(&claim->extensions);
    claim->key = memcpy(claim->texts, request->key, key_size);
    claim->owner = memcpy(claim->texts + key_size, request->owner, owner_size);
    claim->note = memcpy(claim->texts + key_size + owner_size, request->note, note_size);
    return claim;
}

int64_t claim_margin(const struct claim *claim)
{
    int64_t margin_ms = lease_margin(claim->ttl_ms);

    if (claim->max_hold_ms != LB_NONE && claim->max_hold_ms / 2 < margin_ms)
        return claim->max_hold_ms / 2;
    return margin_ms;
}

int64_t claim_lost_at(const struct claim *claim)
{
    return claim->deadline_ms - claim_margin(claim);
}
