// liblockbroker: locks from the lock broker, lockbrokerd, for programs in C and C++.
//
//     struct lb_client *client;
//     struct lb_grant *grant;
//     int r = lb_connect(NULL, NULL, &client);
//     if (r == 0)
//         r = lb_acquire(client, "nightly-backup", NULL, &grant);
//     if (r != 0)
//         fprintf(stderr, "no lock: %s\n", lb_error_text(r));
//     lb_close(client);
//
// Results. A function that returns int returns 0 for success, a positive LB_E_* when the broker
// refused, or a negative errno when the library could not do its part:
//     -ENOTCONN   the connection to the broker is over (the broker ended, restarted or closed it)
//     -EPROTO     the broker sent something that is not the protocol; the connection was dropped
//     -ETIMEDOUT  the broker did not answer in time; the connection is still usable
//     -ECHILD     called in a forked child; the connection belongs to its parent
//     -EINVAL     an argument is not usable (a key or text that is empty, too long, or no UTF-8
//                 without control characters; a grant that is already lost; an unknown option)
//     -EBADR      the `size` of an options struct is not set
//     -ENOMEM     out of memory; nothing was asked of the broker
// and for lb_connect() also -ENOTSOCK (the path is there but is no socket) and what connect(2)
// gives. lb_error_text() has a sentence for each. A function that gives a handle sets it to NULL
// when it fails, and lb_close(NULL) and lb_drop(NULL) do nothing.
//
// Time. All times are milliseconds. A `_deadline_ms` is absolute, on CLOCK_BOOTTIME.
//
// Threads. The library has no global state. A connection with all its grants belongs to one thread
// at a time: different connections may be used by different threads at the same time, the same one
// may not.
//
// Fork. A child must not use its parent's connection: there, calls return -ECHILD and lb_valid() is
// false. The socket is closed on exec; a child that does not exec should call lb_close(), which in
// a child only closes its own copy: the broker gives the locks back when *every* copy is closed.
//
// Signals. Calls go on after a signal handler ran. No call raises SIGPIPE.
//
// When the broker ends, calls return -ENOTCONN. What was granted stays valid until the last
// deadline that the broker told, since the broker does not free a lock before it; then it is lost.
#ifndef LOCKBROKER_H
#define LOCKBROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LOCKBROKER_API        __attribute__((visibility("default")))
#define LOCKBROKER_MUST_CHECK __attribute__((warn_unused_result))
#else
#define LOCKBROKER_API
#define LOCKBROKER_MUST_CHECK
#endif

// Why the broker refused. The numbers are fixed.
enum lb_error {
    LB_E_MALFORMED = 1,  // the request was no well-formed line (a defect of this library)
    LB_E_TOO_LONG = 2,   // the request was too long
    LB_E_UNKNOWN_OP = 3, // the broker does not know the operation: it is older than the library
    LB_E_BAD_FIELD = 4,  // a value is out of range for this broker, such as a ttl over its maximum
    LB_E_BUSY = 5,       // held by another, and wait_ms was 0; try later
    LB_E_TIMEOUT = 6,    // not granted within wait_ms; try later
    LB_E_CANCELLED = 7,  // lb_cancel() came first
    LB_E_ALREADY_HELD = 8, // this connection and owner already hold or wait for the key
    LB_E_NOT_HELD = 9,     // the grant is over
    LB_E_NOT_PENDING = 10, // nothing to cancel: the acquire was answered already
    LB_E_CONFLICT = 11,    // the Redis key holds something that is not a lock
    LB_E_DENIED = 12,      // not allowed to this user
    LB_E_QUOTA = 13,       // a limit of the broker is exhausted; try later
    LB_E_UNAVAILABLE = 14, // Redis cannot be reached, refuses, or may have lost locks; try later
    LB_E_DRAINING = 15,    // the broker is going down; connect again later
    LB_E_INTERNAL = 16,    // a defect of the broker
    LB_E_OTHER = 255       // an error that this version of the library does not know
};

// A connection to the broker.
struct lb_client;

// A lock that was granted. It belongs to its connection: lb_release(), lb_drop() or lb_close() ends
// and frees it, and it may not be used afterwards. A lost grant also has to be released (which
// frees the handle, and tells the broker that the critical section has been left).
struct lb_grant;

// A sentence for a result: 0, an LB_E_*, or a negative errno. Never NULL; never freed.
LOCKBROKER_API const char *lb_error_text(int result);

// The library's version, such as "0.1.0".
LOCKBROKER_API const char *lb_version(void);

// ---- connection --------------------------------------------------------------------------------

// Options are zero-initialised, but for `size`, which is the sizeof the struct: an option left at
// zero has its default, and a program built against an older header goes on working.
struct lb_connect_options {
    size_t size;
    const char *client;     // what `lockbroker list` shows for this program, at most 128 bytes;
                            // NULL: the name of the executable
    int connect_timeout_ms; // for connecting and the broker's first answer; 0: 10 s
    int call_timeout_ms;    // how long an answer may take that does not wait for a lock; 0: 10 s
    char *message;          // NULL, or where to put the broker's sentence when it refuses the
                            // connection ("" when it has not); cut off to fit
    size_t message_size;    // of `message`
};

// Connects to the broker's socket at `path`; NULL means $LOCKBROKER_SOCKET, or else
// /run/lockbroker.sock. `options` may be NULL. `*ret_client` is to be closed with lb_close(); it is
// NULL after a failure. LB_E_QUOTA: the broker has as many connections as it may.
LOCKBROKER_API int lb_connect(const char *path, const struct lb_connect_options *options,
                              struct lb_client **ret_client) LOCKBROKER_MUST_CHECK;

// Ends the connection and frees it with all its grants: the broker gives the locks back. NULL is
// fine.
LOCKBROKER_API void lb_close(struct lb_client *client);

// The sentence that came with the last refusal of a call on this connection, or "". Valid until the
// next call.
LOCKBROKER_API const char *lb_last_message(const struct lb_client *client);

// More about that refusal, as far as the broker said it. Valid until the next call.
//   reason        with LB_E_UNAVAILABLE: "down" (Redis cannot be reached), "refused" (Redis
//   refuses)
//                 or "quarantine" (new locks wait until old ones must have ended); newer brokers
//                 may say more; else ""
//   retry_ms      how long trying again is of no use; -1: not known
//   may_block_ms  the key may be taken for so long by what was asked, although nothing was granted;
//                 0: it is not
LOCKBROKER_API const char *lb_last_reason(const struct lb_client *client);
LOCKBROKER_API int64_t lb_last_retry_ms(const struct lb_client *client);
LOCKBROKER_API int64_t lb_last_may_block_ms(const struct lb_client *client);

// ---- locks -------------------------------------------------------------------------------------

#define LB_WAIT_FOREVER (-1) // as long as the broker allows (its option max_wait)

struct lb_acquire_options {
    size_t size;
    const char *owner;   // contenders with different owners on one connection queue like separate
                         // clients; at most 128 bytes; NULL: ""
    const char *note;    // the purpose, shown to whoever asks who holds the lock; at most 256 bytes
    int64_t ttl_ms;      // the lease: how long the lock outlives a broker that died; at least 1000;
                         // 0: the broker's maximum, which is its default
    int64_t wait_ms;     // how long to wait for the lock; 0: try once; LB_WAIT_FOREVER
    int64_t max_hold_ms; // the grant ends after this time even while it is renewed; 0: no such cap
    bool no_renew;       // true: the broker does not renew, the grant ends after ttl_ms unless
                         // lb_extend() is called
};

// Acquires the lock `key` (1..512 bytes of UTF-8 without control characters). `options` may be
// NULL. `*ret_grant` is NULL after a failure. While it waits, it reads notices for other grants
// into the queue of lb_next_event().
LOCKBROKER_API int lb_acquire(struct lb_client *client, const char *key,
                              const struct lb_acquire_options *options,
                              struct lb_grant **ret_grant) LOCKBROKER_MUST_CHECK;

enum lb_release_outcome {
    LB_RELEASED = 0,   // the lock was ours up to now, and is given back
    LB_WAS_LOST = 1,   // it was lost before; what was done under it may have overlapped
    LB_UNCONFIRMED = 2 // given back, but Redis did not confirm: it is free within frees_within_ms
};

struct lb_release_result {
    enum lb_release_outcome outcome;
    int64_t frees_within_ms; // LB_UNCONFIRMED; else 0
    char reason[64];         // LB_WAS_LOST: why, as the broker says; else ""
};

// Gives the lock back and waits for the outcome. `status` is for the broker's log, at most 128
// bytes, or NULL. `ret_result` may be NULL. The handle is freed whatever is returned. After an
// error the lock is free at the latest when its deadline has passed and the connection is closed.
LOCKBROKER_API int lb_release(struct lb_grant *grant, const char *status,
                              struct lb_release_result *ret_result);

// Gives the lock back without waiting, for event loops: the outcome is not told, and what could not
// be written at once goes out with lb_dispatch(). The handle is freed. NULL is fine.
LOCKBROKER_API void lb_drop(struct lb_grant *grant);

// Extends a grant by `ttl_ms` from now (0: its ttl), and caps it at `max_hold_ms` from now (0:
// leaves the cap alone). Never shortens what was promised.
LOCKBROKER_API int lb_extend(struct lb_grant *grant, int64_t ttl_ms,
                             int64_t max_hold_ms) LOCKBROKER_MUST_CHECK;

// Asks the broker for the grant's present deadline, with no round trip to Redis. 0: still held;
// LB_E_NOT_HELD: lost.
LOCKBROKER_API int lb_check(struct lb_grant *grant) LOCKBROKER_MUST_CHECK;

// True while the lock certainly is ours: one reading of the clock against the last deadline told,
// without asking anybody, so it is right also when the broker is stopped or gone. The broker renews
// without a word; deadlines are told by lb_acquire(), lb_extend(), lb_check() and notices.
// lb_dispatch(), called as lb_timeout_ms() asks, checks by itself often enough to keep a renewed
// grant valid; a program without an event loop calls lb_check() now and then, or when this is
// false.
LOCKBROKER_API bool lb_valid(const struct lb_grant *grant);

// SUSPECT: half of the lease has passed without a confirmed renewal. It is still held.
enum lb_state {
    LB_GRANT_OK = 0,
    LB_GRANT_SUSPECT = 1,
    LB_GRANT_LOST = 2
};

LOCKBROKER_API enum lb_state lb_grant_state(const struct lb_grant *grant);
LOCKBROKER_API const char *lb_grant_key(const struct lb_grant *grant);
LOCKBROKER_API const char *lb_grant_owner(const struct lb_grant *grant); // "" for none
LOCKBROKER_API int64_t lb_grant_ttl_ms(const struct lb_grant *grant);
LOCKBROKER_API int64_t lb_grant_waited_ms(const struct lb_grant *grant);

// A number below 2^53 that rises with every grant of the key, over every broker and all time. Send
// it along with each write, and let the receiver refuse a lower one than it has seen: only this
// protects against a holder that was paused past its deadline.
LOCKBROKER_API int64_t lb_grant_fence(const struct lb_grant *grant);

// The last deadline told. After a loss: when the key may move to another holder.
LOCKBROKER_API int64_t lb_grant_deadline_ms(const struct lb_grant *grant);

// Why the grant was lost: "expired", "deleted", "stolen", "max_hold", "broken", "not_renewed" or
// "shutdown" from the broker, or "disconnected" when the connection ended and the deadline passed;
// newer brokers may say more. "" before.
LOCKBROKER_API const char *lb_grant_lost_reason(const struct lb_grant *grant);

// Why the grant is suspect: "no_answer" (Redis does not answer), "down" (it cannot be reached),
// "restarted" (it was restarted and may have lost the lock) or "clock" (its clock jumped ahead: the
// deadline may now be nearer than it was); newer brokers may say more. "" when it is not.
LOCKBROKER_API const char *lb_grant_suspect_reason(const struct lb_grant *grant);

// A pointer of the program's, NULL at first.
LOCKBROKER_API void lb_grant_set_data(struct lb_grant *grant, void *data);
LOCKBROKER_API void *lb_grant_data(const struct lb_grant *grant);

// ---- event loops -------------------------------------------------------------------------------
//
// Poll lb_fd() for lb_poll_events(), for at most lb_timeout_ms(); then call lb_dispatch() and take
// what lb_next_event() gives until it gives none. Calls that wait, such as lb_acquire(), also put
// notices into this queue. A queue that nobody empties is bounded: a newer notice of a grant takes
// the place of its older one.

// The socket, or -1 after the connection ended.
LOCKBROKER_API int lb_fd(const struct lb_client *client);

// POLLIN, or POLLIN|POLLOUT while something waits to be written; 0 after the connection ended.
LOCKBROKER_API short lb_poll_events(const struct lb_client *client);

// How long lb_dispatch() can wait if the socket stays quiet; -1: for ever; 0: call it now. Count it
// on CLOCK_BOOTTIME where the machine may be suspended.
LOCKBROKER_API int lb_timeout_ms(const struct lb_client *client);

// Reads, writes and does what is due, without blocking. Returns 0, or the reason for which the
// connection ended (again each time). Keep calling it after that while grants are held: their loss
// at their deadlines is told through it.
LOCKBROKER_API int lb_dispatch(struct lb_client *client);

// Starts an acquire; LB_EVENT_ANSWER ends it. `*ret_call` names it.
LOCKBROKER_API int lb_acquire_start(struct lb_client *client, const char *key,
                                    const struct lb_acquire_options *options,
                                    uint64_t *ret_call) LOCKBROKER_MUST_CHECK;

// Asks for the end of a started acquire, which then is answered LB_E_CANCELLED, or is granted if
// that came first. LB_E_NOT_PENDING: it was answered already.
LOCKBROKER_API int lb_cancel(struct lb_client *client, uint64_t call);

enum lb_event_kind {
    LB_EVENT_ANSWER = 1,      // a started acquire ended: `call`, `result`, and `grant` if that is 0
    LB_EVENT_SUSPECT = 2,     // `grant`; see lb_grant_deadline_ms()
    LB_EVENT_OK = 3,          // `grant` is renewed after all
    LB_EVENT_LOST = 4,        // `grant` is over: stop now; see lb_grant_lost_reason()
    LB_EVENT_DISCONNECTED = 5 // the connection ended: `result`
};

struct lb_event {
    enum lb_event_kind kind;
    int result;
    uint64_t call;
    struct lb_grant *grant;
};

// Takes the next event. Returns true, or false when there is none. Kinds unknown to the program are
// to be ignored.
LOCKBROKER_API bool lb_next_event(struct lb_client *client, struct lb_event *ret_event);

#ifdef __cplusplus
}
#endif

#endif
