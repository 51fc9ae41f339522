// What is known of one grant, and the public questions about it that need no clock. A loss is
// terminal: no answer and no notice that comes later makes the grant valid again.
#include "client/lib/grant.h"

#include <stdio.h>

static void grant_take_deadline(struct lb_grant *grant, int64_t deadline_ms)
{
    if (deadline_ms != LB_NONE)
        grant->deadline_ms = deadline_ms;
}

void grant_take_answer(struct lb_grant *grant, const struct reply *reply, int64_t asked_ms)
{
    if (grant->state == LB_GRANT_LOST)
        return;
    grant_take_deadline(grant, reply->deadline_ms);
    grant->asked_ms = asked_ms;
    if (reply->fence != LB_NONE)
        grant->fence = reply->fence;
    if (reply->ttl_ms != LB_NONE)
        grant->ttl_ms = reply->ttl_ms;
    if (reply->waited_ms != LB_NONE)
        grant->waited_ms = reply->waited_ms;
}

bool grant_lose(struct lb_grant *grant, const char *reason)
{
    if (grant->state == LB_GRANT_LOST)
        return false;
    grant->state = LB_GRANT_LOST;
    (void)snprintf(grant->lost_reason, sizeof(grant->lost_reason), "%s", reason ? reason : "");
    return true;
}

bool grant_take_notice(struct lb_grant *grant, const struct notice *notice)
{
    if (grant->state == LB_GRANT_LOST)
        return false;
    grant_take_deadline(grant, notice->deadline_ms);
    if (notice->kind == NOTICE_LOST)
        return grant_lose(grant, notice->reason);
    grant->state = notice->kind == NOTICE_SUSPECT ? LB_GRANT_SUSPECT : LB_GRANT_OK;
    (void)snprintf(grant->suspect_reason, sizeof(grant->suspect_reason), "%s",
                   notice->kind == NOTICE_SUSPECT && notice->reason ? notice->reason : "");
    return true;
}

bool grant_is_valid(const struct lb_grant *grant, int64_t now_ms)
{
    return grant->state != LB_GRANT_LOST && now_ms < grant->deadline_ms;
}

int64_t grant_check_at(const struct lb_grant *grant)
{
    if (!grant->renews || grant->state == LB_GRANT_LOST)
        return INT64_MAX;
    return grant->asked_ms + grant->ttl_ms / 4;
}

enum lb_state lb_grant_state(const struct lb_grant *grant)
{
    return grant->state;
}

const char *lb_grant_key(const struct lb_grant *grant)
{
    return grant->key;
}

const char *lb_grant_owner(const struct lb_grant *grant)
{
    return grant->owner;
}

int64_t lb_grant_ttl_ms(const struct lb_grant *grant)
{
    return grant->ttl_ms;
}

int64_t lb_grant_waited_ms(const struct lb_grant *grant)
{
    return grant->waited_ms;
}

int64_t lb_grant_fence(const struct lb_grant *grant)
{
    return grant->fence;
}

int64_t lb_grant_deadline_ms(const struct lb_grant *grant)
{
    return grant->deadline_ms;
}

const char *lb_grant_lost_reason(const struct lb_grant *grant)
{
    return grant->lost_reason;
}

const char *lb_grant_suspect_reason(const struct lb_grant *grant)
{
    return grant->suspect_reason;
}

void lb_grant_set_data(struct lb_grant *grant, void *data)
{
    grant->data = data;
}

void *lb_grant_data(const struct lb_grant *grant)
{
    return grant->data;
}
