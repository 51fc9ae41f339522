// Tokens: the values that this broker writes under lock keys, `lb1:<host>:<instance>:<serial>`.
#ifndef LB_REDIS_TOKEN_H
#define LB_REDIS_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/macros.h"
#include "proto/message.h"

#define TOKEN_INSTANCE_BYTES_MAX 64
#define TOKEN_QUEUE_ID_LENGTH    16

// "lb1:", host, ':', instance, ':', 20 digits.
#define TOKEN_BYTES_MAX (4 + LB_HOST_BYTES_MAX + 1 + TOKEN_INSTANCE_BYTES_MAX + 1 + 20)

// Who makes the tokens: all of a token but its serial.
struct token_maker {
    char head[TOKEN_BYTES_MAX + 1]; // "lb1:<host>:<instance>:"
    size_t head_length;
    char queue_id[TOKEN_QUEUE_ID_LENGTH + 1]; // what names this broker in queues and channels
};

// Takes the machine's name (1..64 visible ASCII characters without ':') and the instance (1..64 hex
// digits in lower case). Returns 0 or -EINVAL.
int token_maker_init(struct token_maker *maker, const char *host,
                     const char *instance) LB_MUST_CHECK;

// The name in queues and channels of the broker with that instance: the first 16 hex digits of its
// SHA-1, which scripts can make of a token too and which does not tell the instance.
void token_queue_id(const char *instance, char ret_id[TOKEN_QUEUE_ID_LENGTH + 1]);

// Writes the token with that serial, ended by NUL, and returns its length.
size_t token_write(const struct token_maker *maker, uint64_t serial,
                   char ret_token[TOKEN_BYTES_MAX + 1]);

// Tells whose value this is: HOLDER_LOCAL for a token of this maker, HOLDER_BROKER for another
// broker's, HOLDER_FOREIGN for all else. `ret_host` gets the host named in a token, else "".
enum holder_kind token_classify(const struct token_maker *maker, const char *value, size_t length,
                                char ret_host[LB_HOST_BYTES_MAX + 1]);

#endif
