// Fuzzes what Redis sends: the first byte says in how large pieces the rest arrives. What is
// checked beside memory errors: no reply is over a limit, and any reply can be read as the answer
// to any operation.
#include <stdlib.h>

#include "daemon/redis/command.h"
#include "daemon/redis/handshake.h"
#include "tests/fuzz/fuzz.h"

static size_t items_count(const struct resp *reply, size_t depth)
{
    size_t count = reply->count;

    if (depth > RESP_DEPTH_MAX + 1 || reply->count > RESP_ITEMS_MAX ||
        reply->length > RESP_TEXT_BYTES_MAX)
        abort();
    if (reply->kind == RESP_TEXT && reply->text[reply->length] != '\0')
        abort();
    for (size_t i = 0; i < reply->count; i++)
        count += items_count(&reply->items[i], depth + 1);
    return count;
}

static void read_as_everything(const struct resp *reply)
{
    struct token_maker maker;
    char host[LB_HOST_BYTES_MAX + 1];

    if (token_maker_init(&maker, "h", "ab") != 0)
        abort();
    for (int kind = 0; kind < SCRIPT_COUNT; kind++) {
        struct backend_op op = {.kind = (enum backend_op_kind)kind, .not_after_ms = LB_NONE};
        struct backend_outcome outcome = {.result = RESULT_UNKNOWN};

        (void)!command_read(&maker, &op, reply, 0, 1, host, &outcome);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct handshake_options options = {NULL, "password", 1, "h", NULL, NULL, 0};
    struct handshake handshake;
    struct resp_reader reader;
    struct resp *reply;
    int rc = 0, greeting = 0;
    size_t piece;

    if (size < 1 || resp_reader_init(&reader) != 0)
        return 0;
    handshake_init(&handshake, &options);
    piece = (size_t)data[0] * data[0] + 1;
    for (size_t at = 1; at < size && rc == 0; at += piece) {
        size_t length = size - at < piece ? size - at : piece;

        if (resp_reader_feed(&reader, (const char *)data + at, length) != 0)
            break;
        while ((rc = resp_reader_next(&reader, &reply)) == RESP_E_REPLY) {
            if (items_count(reply, 1) > RESP_TOTAL_MAX)
                abort();
            read_as_everything(reply);
            if (greeting == 0)
                greeting = handshake_take(&handshake, reply);
            resp_free(reply);
        }
    }
    resp_reader_deinit(&reader);
    return 0;
}
