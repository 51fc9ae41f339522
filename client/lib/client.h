// A connection to the broker, as the library and the command line tool see it.
#ifndef LB_CLIENT_CLIENT_H
#define LB_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/calls.h"
#include "client/lib/grant.h"
#include "client/lib/lockbroker.h"
#include "proto/buf.h"
#include "proto/framing.h"
#include "proto/macros.h"
#include "proto/message.h"

#define CLIENT_TIMEOUT_MS          10000
#define CLIENT_MESSAGE_BYTES_MAX   511
#define CLIENT_REASON_BYTES_MAX    63
#define CLIENT_UNWRITTEN_BYTES_MAX (1024 * 1024)

// What the broker said with its last refusal.
struct client_refusal {
    char message[CLIENT_MESSAGE_BYTES_MAX + 1];
    char reason[CLIENT_REASON_BYTES_MAX + 1];
    int64_t retry_ms;     // -1: not said
    int64_t may_block_ms; // 0: not at all
};

struct lb_client {
    int fd; // -1 after the end
    pid_t pid;
    int error; // why it ended, a negative errno; 0 while it has not
    int call_timeout_ms;
    int64_t max_wait_ms; // LB_NONE when the broker did not say
    int64_t ttl_max_ms;  // likewise
    struct buf out;
    struct framing in;
    struct calls calls;
    struct grant_list grants;
    struct event_queue events;
    struct queued_event disconnected;
    struct client_refusal refusal;
};

// CLOCK_BOOTTIME in ms.
int64_t client_now_ms(void);

// The socket that lb_connect() would use for `path`.
const char *client_socket_path(const char *path);

// Makes a connection out of a connected socket, which it takes over, without a word to the broker.
// Returns 0 or -ENOMEM (the socket is then left to the caller).
int client_new(int fd, struct lb_client **ret_client) LB_MUST_CHECK;

// 0, -ECHILD in a forked child, or why the connection ended.
int client_usable(const struct lb_client *client) LB_MUST_CHECK;

// Sends as much as the socket takes of what was asked.
void client_write(struct lb_client *client);

// Puts a request on its way, under an id of its own. `*ret_call` belongs to the connection until it
// is answered. Returns 0, -ECHILD, -ENOMEM, or why the connection ended.
int client_ask(struct lb_client *client, const struct request *request, enum call_use use,
               struct call **ret_call) LB_MUST_CHECK;

// Forgets the last refusal, at the begin of a call.
void client_forget_refusal(struct lb_client *client);

// Drops the connection: every pending call is answered with `error`, grants live on up to their
// deadlines. Only the first reason counts.
void client_fail(struct lb_client *client, int error);

// A handle for the key and owner of an acquire request; NULL when there is no memory.
struct lb_grant *client_grant_new(struct lb_client *client,
                                  const struct request *request) LB_MUST_CHECK;

// Takes the handle off the connection and frees it. The broker is told nothing. NULL is fine.
void client_grant_free(struct lb_grant *grant);

// Tells the broker to give the lock back, without waiting for its answer.
void client_grant_give_back(struct lb_grant *grant, const char *status);

// Fills a request that names the grant.
void client_grant_request(const struct lb_grant *grant, enum op op, struct request *ret_request);

// Copies a text into a request's field of `size` bytes. False when it does not fit, or is no UTF-8
// without control characters.
bool client_set_text(char *field, size_t size, const char *text) LB_MUST_CHECK;

// Turns the public options (NULL for none) into a request. Returns 0, -EINVAL or -EBADR.
int client_acquire_request(const char *key, const struct lb_acquire_options *options,
                           struct request *ret_request) LB_MUST_CHECK;

// ---- blocking (sync.c) ----

// Pumps until the call is answered. Returns 0 (see call->result), or -ETIMEDOUT after `timeout_ms`
// (negative: never); the call is then abandoned.
int client_wait(struct lb_client *client, struct call *call, int64_t timeout_ms) LB_MUST_CHECK;

// Asks and waits. `*ret_call`, to be given back with calls_free(), is set whenever the broker
// answered, also by a refusal. Returns 0, an LB_E_* or a negative errno. `timeout_ms` 0 is the
// connection's own, negative is for ever.
int client_request(struct lb_client *client, const struct request *request, int64_t timeout_ms,
                   struct call **ret_call) LB_MUST_CHECK;

// As lb_acquire(), and on a refusal the broker's answer in `*ret_refusal` (else NULL), to be given
// back with calls_free().
int client_acquire(struct lb_client *client, const char *key,
                   const struct lb_acquire_options *options, struct lb_grant **ret_grant,
                   struct call **ret_refusal) LB_MUST_CHECK;

// As lb_check() and lb_release(), with a time-out.
int client_check(struct lb_grant *grant, int64_t timeout_ms) LB_MUST_CHECK;
int client_release(struct lb_grant *grant, const char *status, int64_t timeout_ms,
                   struct lb_release_result *ret_result) LB_MUST_CHECK;

#endif
