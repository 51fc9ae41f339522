// The URL of a backend: redis://[user[:password]@]host[:port][/db], redis+unix:///path.sock[?db=N]
// or memory://. User, password and path may be percent-encoded.
#ifndef LB_CONFIG_BACKEND_URL_H
#define LB_CONFIG_BACKEND_URL_H

#include <stddef.h>

#include "proto/macros.h"

#define BACKEND_URL_BYTES_MAX      1023
#define BACKEND_HOST_BYTES_MAX     253
#define BACKEND_PATH_BYTES_MAX     107
#define BACKEND_USER_BYTES_MAX     256
#define BACKEND_PASSWORD_BYTES_MAX 512
#define BACKEND_PORT_DEFAULT       6379

enum backend_kind {
    BACKEND_KIND_TCP,
    BACKEND_KIND_UNIX,
    BACKEND_KIND_MEMORY
};

// Texts that are not given are "". An IPv6 address stands here without its brackets.
struct backend_url {
    enum backend_kind kind;
    char host[BACKEND_HOST_BYTES_MAX + 1];
    int port;
    char path[BACKEND_PATH_BYTES_MAX + 1];
    char user[BACKEND_USER_BYTES_MAX + 1];
    char password[BACKEND_PASSWORD_BYTES_MAX + 1];
    int database;
};

// Parses a URL. Returns 0, or -EINVAL with a sentence in *ret_problem that says what is wrong and
// holds nothing of the URL.
int backend_url_parse(const char *text, struct backend_url *ret_url,
                      const char **ret_problem) LB_MUST_CHECK;

// Writes a URL that backend_url_parse() accepts, its password replaced by ***. `size` must be at
// least BACKEND_URL_BYTES_MAX + 4.
void backend_url_mask(const char *text, char *ret_text, size_t size);

#endif
