// A subcommand's conversation with the broker; what fails is said on standard error.
#ifndef LB_CLI_SESSION_H
#define LB_CLI_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/client.h"
#include "proto/macros.h"

// Connects. `path` NULL is the default socket, `name` what the broker shows for us. Returns an exit
// status; after EXIT_CODE_OK `*ret_client` is to be closed with lb_close().
int session_open(const char *path, const char *name, struct lb_client **ret_client) LB_MUST_CHECK;

// Asks and waits. Returns an exit status; after EXIT_CODE_OK `*ret_call` has the answer, to be
// given back with calls_free().
int session_ask(struct lb_client *client, const struct request *request,
                struct call **ret_call) LB_MUST_CHECK;

// Prints an answer as it was received, as one line. Returns an exit status.
int session_print_line(const struct call *call) LB_MUST_CHECK;

// Says that memory ran out, and returns the exit status for that.
int session_out_of_memory(void);

// The exit status for a result of a library call.
int session_exit_code(int result);

// Says what failed and what to do: for an LB_E_* and what the broker said with it; and for a
// negative errno of the connection to the socket `path` (NULL: the default).
void session_report_refusal(int result, const struct client_refusal *refusal);
void session_report_failure(int result, const char *path);

// Fills a request for `op`, for `key` if that is not NULL. Returns an exit status: a key that
// cannot be one is said to be so.
int session_request(enum op op, const char *key, struct request *ret_request) LB_MUST_CHECK;

#endif
