// From a host name or numeric address to socket addresses.
#ifndef LB_REDIS_RESOLVE_H
#define LB_REDIS_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <uv.h>

#include "proto/macros.h"

#define RESOLVE_ADDRESSES_MAX  8 // further ones are not tried
#define RESOLVE_HOST_BYTES_MAX 253

struct resolve_result {
    struct sockaddr_storage addresses[RESOLVE_ADDRESSES_MAX];
    size_t count;
};

struct resolve;

// True for a name of letters, digits, '.', '-' and '_' that does not begin with '-', and for an
// IPv4 or IPv6 address: other names never reach the system's resolver, which has cut some of them
// to another host's address.
bool resolve_host_is_valid(const char *host);

// Fills in the address of a numeric host; false when it is none.
bool resolve_numeric(const char *host, int port, struct resolve_result *ret_result);

// Asks the system, outside of the loop's thread. `on_done` is called once with status 0 and the
// addresses (at least one; borrowed) or with a negative libuv error. Returns 0 or a negative errno.
int resolve_start(uv_loop_t *loop, const char *host, int port,
                  void (*on_done)(void *context, int status, const struct resolve_result *result),
                  void *context, struct resolve **ret_resolve) LB_MUST_CHECK;

// Forgets the question: `on_done` is not called any more. The loop lives on until the system has
// answered.
void resolve_abandon(struct resolve *resolve);

#endif
