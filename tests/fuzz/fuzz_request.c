// Fuzzes the broker's way in: bytes -> lines -> requests. The first byte says in pieces of which
// size the rest comes. What is checked beside memory errors: a piece size never changes what comes
// out, a line that was taken comes back the same when written and read again, and a refusal can be
// sent.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/framing.h"
#include "proto/reply.h"
#include "proto/request.h"
#include "tests/fuzz/fuzz.h"

#define LINE_BYTES_MAX 512

static void must(bool is_so)
{
    if (!is_so)
        abort();
}

static void check_refusal(const struct reply *refusal)
{
    struct buf buf;

    must(refusal->error != ERROR_NONE);
    must(refusal->error != ERROR_BAD_FIELD || (refusal->field && refusal->message));
    buf_init(&buf, LB_REPLY_LINE_BYTES_MAX);
    must(reply_write(&buf, refusal) == 0);
    buf_clear(&buf);
}

static void check_request(const struct request *request)
{
    static struct request again;
    struct reply refusal;
    struct buf first;
    struct buf second;

    buf_init(&first, LB_REPLY_LINE_BYTES_MAX);
    buf_init(&second, LB_REPLY_LINE_BYTES_MAX);
    must(request_write(&first, request) == 0);
    must(request_parse(buf_bytes(&first), buf_length(&first) - 1, &again, &refusal) == 0);
    must(request_write(&second, &again) == 0);
    must(buf_length(&first) == buf_length(&second));
    must(memcmp(buf_bytes(&first), buf_bytes(&second), buf_length(&first)) == 0);
    buf_clear(&first);
    buf_clear(&second);
}

static void check_line(const char *line, size_t length)
{
    static struct request request;
    struct reply refusal;

    if (request_parse(line, length, &request, &refusal) == 0)
        check_request(&request);
    else
        check_refusal(&refusal);
}

// Adds what came out of the framing to a hash.
static uint64_t mix(uint64_t hash, int outcome, const char *line, size_t length)
{
    hash = (hash ^ (uint64_t)outcome) * 0x100000001B3;
    for (size_t i = 0; outcome == FRAMING_E_LINE && i < length; i++)
        hash = (hash ^ (unsigned char)line[i]) * 0x100000001B3;
    return hash;
}

static uint64_t run(const char *bytes, size_t length, size_t piece, bool parse)
{
    struct framing framing;
    uint64_t hash = 0xCBF29CE484222325;

    framing_init(&framing, LINE_BYTES_MAX);
    while (length > 0) {
        const char *at = bytes;
        size_t left = piece < length ? piece : length;
        const char *line = NULL;
        size_t line_bytes = 0;
        int r;

        bytes += left;
        length -= left;
        while ((r = framing_next(&framing, &at, &left, &line, &line_bytes)) != 0) {
            must(r == FRAMING_E_LINE || r == FRAMING_E_TOO_LONG);
            must(r == FRAMING_E_TOO_LONG || line_bytes <= LINE_BYTES_MAX);
            hash = mix(hash, r, line, line_bytes);
            if (parse && r == FRAMING_E_LINE)
                check_line(line, line_bytes);
        }
        must(left == 0 && buf_length(&framing.partial) <= LINE_BYTES_MAX + 1);
    }
    framing_deinit(&framing);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;

    if (size < 2)
        return 0;
    if (!is_ready) {
        must(request_parser_init() == 0);
        is_ready = true;
    }

    const char *bytes = (const char *)data + 1;
    size_t piece = (size_t)data[0] + 1;

    must(run(bytes, size - 1, piece, true) == run(bytes, size - 1, size, false));
    check_line(bytes, size - 1);
    return 0;
}
