// One granted lock as its holder knows it. Pure: the time is an argument.
#ifndef LB_CLIENT_GRANT_H
#define LB_CLIENT_GRANT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "client/lib/calls.h"
#include "client/lib/lockbroker.h"
#include "proto/limits.h"
#include "proto/message.h"

#define GRANT_REASON_BYTES_MAX 63

struct lb_grant {
    TAILQ_ENTRY(lb_grant) entry;
    struct lb_client *client;
    char key[LB_KEY_BYTES_MAX + 1];
    char owner[LB_OWNER_BYTES_MAX + 1];
    bool is_listed; // by its connection
    bool renews;
    int64_t fence;
    int64_t ttl_ms;
    int64_t waited_ms;
    int64_t deadline_ms; // the last one told
    int64_t asked_ms;    // how fresh it is: the question was sent then
    enum lb_state state;
    char lost_reason[GRANT_REASON_BYTES_MAX + 1];
    char suspect_reason[GRANT_REASON_BYTES_MAX + 1]; // "" unless it is suspect
    struct call *check;                              // the automatic check that is pending, or NULL
    void *data;
    struct queued_event queued;
};

TAILQ_HEAD(grant_list, lb_grant);

// Takes what the answer to an acquire, extend or check says; `asked_ms` is how fresh that is.
// Ignored after a loss: that is terminal.
void grant_take_answer(struct lb_grant *grant, const struct reply *reply, int64_t asked_ms);

// Takes a notice. Returns true when it changed the grant: nothing follows a loss.
bool grant_take_notice(struct lb_grant *grant, const struct notice *notice);

// The grant is over. Returns false when it already was.
bool grant_lose(struct lb_grant *grant, const char *reason);

// True while the grant certainly is ours.
bool grant_is_valid(const struct lb_grant *grant, int64_t now_ms);

// When the broker is to be asked for the present deadline: a quarter of the ttl after the last
// question. INT64_MAX for a grant whose deadline does not move.
int64_t grant_check_at(const struct lb_grant *grant);

#endif
