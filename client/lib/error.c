// A sentence for each result of the public functions.
#include "client/lib/lockbroker.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "proto/macros.h"

static const char *const error_refusals[] = {
    [0] = "success",
#define X(symbol, name, text) [LB_E_##symbol] = text,
#include "proto/errors.def"
#undef X
};

static const char *error_failure(int error)
{
    switch (error) {
    case ENOTCONN:
        return "the connection to the broker is over";
    case EPROTO:
        return "the broker sent something that is not its protocol; the connection was dropped";
    case ETIMEDOUT:
        return "the broker did not answer in time";
    case ECHILD:
        return "the connection belongs to the parent process; a forked child needs its own";
    case EINVAL:
        return "an argument is not usable: empty, too long, or not plain UTF-8 text";
    case ECONNREFUSED:
        return "nothing listens on the socket";
    case ENOENT:
        return "the socket does not exist";
    case ENOTSOCK:
        return "this is not a socket";
    case EBADR:
        return "the member 'size' of an options struct is not set; set it to the struct's sizeof";
    case EACCES:
        return "this user may not use the socket";
    default:
        return strerrordesc_np(error);
    }
}

const char *lb_error_text(int result)
{
    const char *text = NULL;

    if (result < 0)
        text = error_failure(-result);
    else if ((size_t)result < LB_ARRAY_LENGTH(error_refusals))
        text = error_refusals[result];
    return text ? text : "an error that this version does not know";
}

const char *lb_version(void)
{
    return LB_VERSION;
}
