// The public option structs turned into requests. A struct may come from a program that was built
// against another version of the header: `size` says how much of it there is, and what this library
// does not know must be zero.
#include "client/lib/client.h"

#include <errno.h>
#include <string.h>

#include "client/lib/options.h"
#include "proto/request.h"
#include "proto/utf8.h"

int options_copy(void *target, size_t target_size, const void *source, size_t source_size)
{
    const unsigned char *bytes = source;

    if (source_size < sizeof(size_t))
        return -EBADR;
    for (size_t i = target_size; i < source_size; i++) {
        if (bytes[i] != 0)
            return -EINVAL;
    }
    memset(target, 0, target_size);
    memcpy(target, source, source_size < target_size ? source_size : target_size);
    return 0;
}

bool client_set_text(char *field, size_t size, const char *text)
{
    size_t length = strnlen(text, size);
    size_t used = 0;
    size_t char_bytes;

    if (length >= size)
        return false;
    while (used < length) {
        char_bytes = utf8_char_bytes(text + used, length - used);
        if (char_bytes == 0 || (unsigned char)text[used] < 0x20 || text[used] == 0x7f)
            return false;
        used += char_bytes;
    }
    memcpy(field, text, length + 1);
    return true;
}

static bool options_take_number(struct request *request, uint32_t field, int64_t *target,
                                int64_t value)
{
    if (value == 0)
        return true;
    if (value < 0 || value > LB_INTEGER_MAX)
        return false;
    request->given |= field;
    *target = value;
    return true;
}

static bool options_take_text(struct request *request, uint32_t field, char *target, size_t size,
                              const char *text)
{
    if (!text || text[0] == '\0')
        return true;
    request->given |= field;
    return client_set_text(target, size, text);
}

int client_acquire_request(const char *key, const struct lb_acquire_options *options,
                           struct request *ret_request)
{
    struct lb_acquire_options own = {.size = sizeof(own)};
    struct request request;
    int64_t wait_ms;
    int r = options ? options_copy(&own, sizeof(own), options, options->size) : 0;

    if (r != 0)
        return r;
    request_init(&request);
    request.op = OP_ACQUIRE;
    request.given = REQUEST_F_KEY;
    if (!key || key[0] == '\0' || !client_set_text(request.key, sizeof(request.key), key))
        return -EINVAL;
    // Zero is the default of the wire too; only -1 has to pass by the check for negative numbers.
    wait_ms = own.wait_ms == LB_WAIT_FOREVER ? 0 : own.wait_ms;
    if (!options_take_text(&request, REQUEST_F_OWNER, request.owner, sizeof(request.owner),
                           own.owner) ||
        !options_take_text(&request, REQUEST_F_NOTE, request.note, sizeof(request.note),
                           own.note) ||
        !options_take_number(&request, REQUEST_F_TTL_MS, &request.ttl_ms, own.ttl_ms) ||
        !options_take_number(&request, REQUEST_F_WAIT_MS, &request.wait_ms, wait_ms) ||
        !options_take_number(&request, REQUEST_F_MAX_HOLD_MS, &request.max_hold_ms,
                             own.max_hold_ms))
        return -EINVAL;
    if (own.wait_ms == LB_WAIT_FOREVER) {
        request.given |= REQUEST_F_WAIT_MS;
        request.wait_ms = -1;
    }
    if (own.no_renew) {
        request.given |= REQUEST_F_RENEW;
        request.renew = false;
    }
    *ret_request = request;
    return 0;
}
