// Makes and recognises tokens. A value read from Redis may have been written by anybody, so what
// does not have the exact form of a token is foreign, and no byte of it is passed on.
#include "daemon/redis/token.h"

#include <errno.h>
#include <sha1.h>
#include <stdbool.h>
#include <string.h>

#include "proto/decimal.h"

#define TOKEN_MAGIC        "lb1:"
#define TOKEN_MAGIC_LENGTH 4
#define TOKEN_SERIAL_MAX   20 // digits

static bool char_is_host(char byte)
{
    return byte > 0x20 && byte < 0x7f && byte != ':';
}

static bool char_is_hex(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

static bool char_is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

// How many bytes from the front are of that class.
static size_t span(const char *bytes, size_t length, bool (*is_member)(char))
{
    size_t count = 0;

    while (count < length && is_member(bytes[count]))
        count++;
    return count;
}

static bool text_is(const char *text, size_t length_max, bool (*is_member)(char))
{
    size_t length = strlen(text);

    return length >= 1 && length <= length_max && span(text, length, is_member) == length;
}

int token_maker_init(struct token_maker *maker, const char *host, const char *instance)
{
    if (!text_is(host, LB_HOST_BYTES_MAX, char_is_host) ||
        !text_is(instance, TOKEN_INSTANCE_BYTES_MAX, char_is_hex))
        return -EINVAL;
    maker->head_length =
        (size_t)snprintf(maker->head, sizeof(maker->head), TOKEN_MAGIC "%s:%s:", host, instance);
    token_queue_id(instance, maker->queue_id);
    return 0;
}

void token_queue_id(const char *instance, char ret_id[TOKEN_QUEUE_ID_LENGTH + 1])
{
    char digest[SHA1_DIGEST_STRING_LENGTH];

    (void)SHA1Data((const uint8_t *)instance, strlen(instance), digest);
    memcpy(ret_id, digest, TOKEN_QUEUE_ID_LENGTH);
    ret_id[TOKEN_QUEUE_ID_LENGTH] = '\0';
}

size_t token_write(const struct token_maker *maker, uint64_t serial,
                   char ret_token[TOKEN_BYTES_MAX + 1])
{
    size_t length = maker->head_length;

    memcpy(ret_token, maker->head, length);
    length += decimal_write_unsigned(serial, ret_token + length);
    ret_token[length] = '\0';
    return length;
}

// Takes a part of that class, 1..`length_max` bytes, and the ':' after it. Returns the part's
// length, or 0 when there is none.
static size_t part_take(const char **at, size_t *length, size_t length_max, bool (*is_member)(char))
{
    size_t count = span(*at, *length, is_member);

    if (count < 1 || count > length_max || count == *length || (*at)[count] != ':')
        return 0;
    *at += count + 1;
    *length -= count + 1;
    return count;
}

static bool is_serial(const char *bytes, size_t length)
{
    return length >= 1 && length <= TOKEN_SERIAL_MAX &&
           span(bytes, length, char_is_digit) == length;
}

enum holder_kind token_classify(const struct token_maker *maker, const char *value, size_t length,
                                char ret_host[LB_HOST_BYTES_MAX + 1])
{
    const char *host, *at;
    size_t left, host_length;

    ret_host[0] = '\0';
    if (length < TOKEN_MAGIC_LENGTH || memcmp(value, TOKEN_MAGIC, TOKEN_MAGIC_LENGTH) != 0)
        return HOLDER_FOREIGN;
    host = at = value + TOKEN_MAGIC_LENGTH;
    left = length - TOKEN_MAGIC_LENGTH;
    host_length = part_take(&at, &left, LB_HOST_BYTES_MAX, char_is_host);
    if (!host_length || !part_take(&at, &left, TOKEN_INSTANCE_BYTES_MAX, char_is_hex) ||
        !is_serial(at, left))
        return HOLDER_FOREIGN;
    memcpy(ret_host, host, host_length);
    ret_host[host_length] = '\0';
    if ((size_t)(at - value) == maker->head_length &&
        memcmp(value, maker->head, maker->head_length) == 0)
        return HOLDER_LOCAL;
    return HOLDER_BROKER;
}
