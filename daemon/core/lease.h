// The arithmetic of one lease: pure functions of the time of sending and the ttl, all in ms.
#ifndef LB_CORE_LEASE_H
#define LB_CORE_LEASE_H

#include <stdint.h>

// What is known of our key's expiry in the backend.
struct lease {
    int64_t sent_ms;     // clock read before the last confirmed command was formatted
    int64_t ttl_ms;      // the expiry that it set
    int64_t deadline_ms; // the latest time until which the key certainly is ours
    int64_t stepped_ms;  // how far the server's clock has jumped forwards since then
};

// D = sent + ttl - ttl/100 - 2 - min(500, ttl/20): one hundredth for the drift between two clocks,
// 2 ms for the rounding of both, the last term for a tolerated step of the server's clock. Counted
// from the sending: the reply may come arbitrarily late.
int64_t lease_deadline(int64_t sent_ms, int64_t ttl_ms);

// J = min(500, ttl/20): the step of the server's clock that a deadline allows for.
int64_t lease_step_tolerance(int64_t ttl_ms);

// A ttl, hardly above the least one, with which a command sent at `sent_ms` makes a lease that
// lasts until `deadline_ms`: lease_deadline() the other way round.
int64_t lease_ttl_until(int64_t sent_ms, int64_t deadline_ms);

// M = min(max(ttl/10, 100), 3000): how long before its deadline a holder is told `lost`, and the
// least that is left when a grant is told.
int64_t lease_margin(int64_t ttl_ms);

// What a contender that asks for `ttl_ms` is told of a lease that is there already: no more than it
// would get by a renewal now. That lease's certain end does not move.
struct lease lease_inherit(const struct lease *lease, int64_t now_ms, int64_t ttl_ms);

// When to renew: a third of the ttl after the last confirmed sending.
int64_t lease_renew_at(const struct lease *lease);

// How much earlier a renewal may go so as to share a call with others: ttl/12.
int64_t lease_renew_slack(int64_t ttl_ms);

// When an unconfirmed lease becomes suspect: half of the ttl after the last confirmed sending.
int64_t lease_suspect_at(const struct lease *lease);

// How long a command that serves this lease may go unanswered: ttl/15, within 250..2000.
int64_t lease_command_timeout(int64_t ttl_ms);

// How long to pause after a renewal failed while the link is up: ttl/30, within 20..1000.
int64_t lease_retry_pause(int64_t ttl_ms);

#endif
