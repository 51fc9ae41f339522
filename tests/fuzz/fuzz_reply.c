// Fuzzes the client's way in: a line from a broker. What is checked beside memory errors: whatever
// was taken as a reply or event can be written again without a crash.
#include <errno.h>
#include <stdlib.h>

#include "proto/incoming.h"
#include "proto/reply.h"
#include "tests/fuzz/fuzz.h"

static void must_write_or_be_full(int r)
{
    if (r != 0 && r != -ENOBUFS)
        abort();
}

static void write_again(struct incoming *incoming)
{
    struct buf buf;

    buf_init(&buf, (size_t)8 * LB_REPLY_LINE_BYTES_MAX);
    if (incoming->kind == INCOMING_NOTICE)
        must_write_or_be_full(notice_write(&buf, &incoming->notice));
    if (incoming->kind == INCOMING_REPLY) {
        incoming->reply.op = incoming->reply.stats ? OP_STATS : OP_LIST;
        must_write_or_be_full(reply_write(&buf, &incoming->reply));
        incoming->reply.op = OP_QUERY;
        must_write_or_be_full(reply_write(&buf, &incoming->reply));
    }
    buf_clear(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct incoming incoming;

    if (reply_parse((const char *)data, size, &incoming) != 0)
        return 0;
    write_again(&incoming);
    incoming_clear(&incoming);
    return 0;
}
