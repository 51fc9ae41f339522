// What is said on a new connection before anything is served: AUTH, a name, questions about the
// server, and what the connection is for: the database and the scripts, or a channel. All of it is
// sent at once; every connection goes through all of it.
#ifndef LB_REDIS_HANDSHAKE_H
#define LB_REDIS_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/backend.h"
#include "daemon/redis/resp.h"
#include "daemon/redis/script.h"
#include "proto/macros.h"

#define HANDSHAKE_STEPS_MAX         (7 + SCRIPT_COUNT)
#define HANDSHAKE_WORD_BYTES_MAX    63
#define HANDSHAKE_PROBLEM_BYTES_MAX 127

// How to present ourselves. Texts are borrowed for the handshake's life.
struct handshake_options {
    const char *user;     // NULL: none
    const char *password; // NULL: no AUTH
    int database;
    const char *host;    // for the connection's name
    const char *channel; // what to hear on a connection for that alone; NULL: one for commands
    const char *run_id;  // which run of a server it must be; NULL: any
    int64_t now_ms;      // CLOCK_BOOTTIME: no command of it is sent before
};

struct handshake {
    struct handshake_options options;
    int steps[HANDSHAKE_STEPS_MAX];
    size_t steps_count;
    size_t answered;

    // What was learnt; "": nothing.
    char role[HANDSHAKE_WORD_BYTES_MAX + 1];
    char version[HANDSHAKE_WORD_BYTES_MAX + 1];
    char run_id[HANDSHAKE_WORD_BYTES_MAX + 1];
    char policy[HANDSHAKE_WORD_BYTES_MAX + 1];
    int64_t server_ms; // LB_NONE: not known
    struct script_names scripts;

    // With HANDSHAKE_E_REFUSED, for the log.
    char problem[HANDSHAKE_PROBLEM_BYTES_MAX + 1];
    const char *hint; // what to do about it; static, or NULL
};

#define HANDSHAKE_E_DONE    1 // all is answered and well
#define HANDSHAKE_E_REFUSED 2 // this server cannot be used; `problem` says why

void handshake_init(struct handshake *handshake, const struct handshake_options *options);

// The bytes of command `index`, 0..steps_count-1, to be given back with command_free(). They may
// hold the password. Returns 0 or -ENOMEM.
int handshake_format(const struct handshake *handshake, size_t index, char **ret_bytes,
                     size_t *ret_length) LB_MUST_CHECK;

// Takes the next reply. Returns 0 when more are to come, HANDSHAKE_E_DONE or HANDSHAKE_E_REFUSED.
int handshake_take(struct handshake *handshake, const struct resp *reply) LB_MUST_CHECK;

// What the broker is told; texts lie in the handshake.
void handshake_facts(const struct handshake *handshake, struct backend_facts *ret_facts);

#endif
