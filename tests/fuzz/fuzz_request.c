// Fuzzes the broker's way in: bytes -> lines -> requests. The first byte says in pieces of which
// size the rest comes. What is checked beside memory errors: a piece size never changes what comes
// out, JSON is read as jansson reads it, a line that was taken comes back the same when written and
// read again, and a refusal can be sent.
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/framing.h"
#include "proto/json_in.h"
#include "proto/json_scan.h"
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

static bool value_is_same(const struct json_value *ours, const json_t *theirs)
{
    switch (ours->kind) {
    case JSON_KIND_INTEGER:
        return json_is_integer(theirs) && json_integer_value(theirs) == ours->integer;
    case JSON_KIND_TEXT:
        return json_is_string(theirs) && json_string_length(theirs) == ours->length &&
               memcmp(json_string_value(theirs), ours->text, ours->length + 1) == 0;
    case JSON_KIND_NULL:
        return json_is_null(theirs);
    case JSON_KIND_FALSE:
        return json_is_false(theirs);
    case JSON_KIND_TRUE:
        return json_is_true(theirs);
    case JSON_KIND_REAL:
        return json_is_real(theirs);
    case JSON_KIND_OBJECT:
        return json_is_object(theirs);
    case JSON_KIND_ARRAY:
        return json_is_array(theirs);
    }
    return false;
}

// Our reader takes what jansson takes, and reads the same from it.
static void check_reader(const char *line, size_t length)
{
    static char space[LB_REQUEST_LINE_BYTES_MAX];
    bool is_within = json_scan(line, length, LB_JSON_DEPTH_MAX, LB_JSON_MEMBERS_MAX);
    struct json_object object;
    bool is_taken;
    json_t *theirs;

    if (length > sizeof(space))
        return;
    is_taken = json_in(line, length, space, &object);
    theirs = is_within ? json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    must(is_taken == json_is_object(theirs));
    must(!is_taken || object.count == json_object_size(theirs));
    for (size_t i = 0; is_taken && i < object.count; i++)
        must(value_is_same(&object.members[i].value,
                           json_object_get(theirs, object.members[i].name)));
    json_decref(theirs);
}

static void check_line(const char *line, size_t length)
{
    static struct request request;
    struct reply refusal;

    check_reader(line, length);

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
    if (size < 2)
        return 0;

    const char *bytes = (const char *)data + 1;
    size_t piece = (size_t)data[0] + 1;

    must(run(bytes, size - 1, piece, true) == run(bytes, size - 1, size, false));
    check_line(bytes, size - 1);
    return 0;
}
