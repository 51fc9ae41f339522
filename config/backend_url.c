// Parses backend URLs. It may not resolve names or open anything, and no sentence about a mistake
// may quote the URL: a misplaced character can put the password anywhere in it.
#include "config/backend_url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TCP_SCHEME    "redis://"
#define UNIX_SCHEME   "redis+unix://"
#define MEMORY_URL    "memory://"
#define PASSWORD_MASK "***"

// A piece of the URL.
struct span {
    const char *start;
    size_t length;
};

static struct span span_of(const char *text)
{
    return (struct span){.start = text, .length = strlen(text)};
}

// Cuts `span` at the first `separator`, which goes away, and returns what stood after it. The start
// of the result is NULL when there was none.
static struct span span_split(struct span *span, char separator)
{
    const char *found = memchr(span->start, separator, span->length);
    struct span rest = {0};

    if (!found)
        return rest;
    rest.start = found + 1;
    rest.length = span->length - (size_t)(found - span->start) - 1;
    span->length = (size_t)(found - span->start);
    return rest;
}

static bool span_has(struct span span, char byte)
{
    return span.length > 0 && memchr(span.start, byte, span.length);
}

// Reads a number of digits alone. False when it is none or above `most`.
static bool span_number(struct span span, int64_t most, int *ret_number)
{
    int64_t number = 0;

    if (span.length < 1 || span.length > 10)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        if (span.start[i] < '0' || span.start[i] > '9')
            return false;
        number = number * 10 + (span.start[i] - '0');
    }
    if (number > most)
        return false;
    *ret_number = (int)number;
    return true;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

// Percent-decodes into `ret_text`. False when a % is not followed by two hex digits, when a byte
// would be NUL, or when it is longer than size - 1.
static bool span_decode(struct span span, char *ret_text, size_t size)
{
    size_t length = 0;

    for (size_t i = 0; i < span.length; i++) {
        int byte = (unsigned char)span.start[i];

        if (byte == '%') {
            int high = i + 2 < span.length ? hex_value(span.start[i + 1]) : -1;
            int low = i + 2 < span.length ? hex_value(span.start[i + 2]) : -1;

            byte = high < 0 || low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (byte == 0 || length + 1 >= size)
            return false;
        ret_text[length++] = (char)byte;
    }
    ret_text[length] = '\0';
    return true;
}

static const char *user_parse(struct span user, struct backend_url *url)
{
    struct span password = span_split(&user, ':');

    if (user.length == 0 && !password.start)
        return "there is nothing before the @";
    if (!span_decode(user, url->user, sizeof(url->user)))
        return "the user is longer than 256 bytes or has a bad %XX";
    if (!password.start)
        return NULL;
    if (password.length == 0)
        return "the password is empty";
    if (!span_decode(password, url->password, sizeof(url->password)))
        return "the password is longer than 512 bytes or has a bad %XX";
    return NULL;
}

static const char *port_parse(struct span port, struct backend_url *url)
{
    if (!port.start)
        return NULL;
    if (!span_number(port, 65535, &url->port) || url->port < 1)
        return "the port must be a number from 1 to 65535";
    return NULL;
}

static const char *address6_parse(struct span host, struct backend_url *url)
{
    struct span inside = {.start = host.start + 1, .length = host.length - 1};
    struct span after = span_split(&inside, ']');
    struct in6_addr ignored;

    if (!after.start)
        return "the [ before the address is never closed";
    if (inside.length >= sizeof(url->host))
        return "there is no valid IPv6 address in the brackets";
    memcpy(url->host, inside.start, inside.length);
    url->host[inside.length] = '\0';
    if (inet_pton(AF_INET6, url->host, &ignored) != 1)
        return "there is no valid IPv6 address in the brackets";
    if (after.length == 0)
        return NULL;
    if (*after.start != ':')
        return "after the ] only :PORT may follow";
    return port_parse((struct span){.start = after.start + 1, .length = after.length - 1}, url);
}

static bool host_byte_ok(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_';
}

static const char *host_parse(struct span host, struct backend_url *url)
{
    struct span port;

    if (span_has(host, '['))
        return *host.start == '[' ? address6_parse(host, url)
                                  : "a [ may only stand at the start of the host";
    port = span_split(&host, ':');
    if (port.start && span_has(port, ':'))
        return "an IPv6 address must stand in brackets";
    if (host.length == 0)
        return "the host is missing";
    if (host.length >= sizeof(url->host))
        return "the host is longer than 253 bytes";
    if (*host.start == '-')
        return "the host may not begin with -";
    for (size_t i = 0; i < host.length; i++) {
        if (!host_byte_ok(host.start[i]))
            return "the host may have letters, digits, - . and _ alone";
    }
    memcpy(url->host, host.start, host.length);
    url->host[host.length] = '\0';
    return port_parse(port, url);
}

static const char *database_parse(struct span database, struct backend_url *url)
{
    if (!span_number(database, INT32_MAX, &url->database))
        return "the database must be a number from 0 to 2147483647";
    return NULL;
}

static const char *tcp_parse(struct span rest, struct backend_url *url)
{
    struct span database = span_split(&rest, '/');
    struct span host;
    const char *problem = NULL;

    url->kind = BACKEND_KIND_TCP;
    url->port = BACKEND_PORT_DEFAULT;
    if (span_has(database, '@'))
        return "a / in the user or password must be written as %2F, an @ as %40";
    host = span_split(&rest, '@');
    if (span_has(host, '@'))
        return "an @ in the user or password must be written as %40";
    if (host.start)
        problem = user_parse(rest, url);
    else
        host = rest;
    if (!problem)
        problem = host_parse(host, url);
    if (!problem && database.length > 0)
        problem = database_parse(database, url);
    return problem;
}

static const char *unix_parse(struct span rest, struct backend_url *url)
{
    struct span query = span_split(&rest, '?');

    url->kind = BACKEND_KIND_UNIX;
    if (rest.length == 0 || *rest.start != '/')
        return "after redis+unix:// an absolute path must follow, without user, password or host";
    if (!span_decode(rest, url->path, sizeof(url->path)))
        return "the path is longer than 107 bytes or has a bad %XX";
    if (!query.start)
        return NULL;
    if (query.length < 3 || memcmp(query.start, "db=", 3) != 0)
        return "after the ? only db=N may follow";
    return database_parse((struct span){.start = query.start + 3, .length = query.length - 3}, url);
}

static bool text_is_plain(const char *text)
{
    for (; *text; text++) {
        if (*text <= ' ' || *text > '~')
            return false;
    }
    return true;
}

static const char *url_parse(const char *text, struct backend_url *url)
{
    if (strlen(text) > BACKEND_URL_BYTES_MAX)
        return "the URL is longer than 1023 bytes";
    if (!text_is_plain(text))
        return "blanks, control characters and all but ASCII must be written as %XX";
    if (strncmp(text, TCP_SCHEME, strlen(TCP_SCHEME)) == 0)
        return tcp_parse(span_of(text + strlen(TCP_SCHEME)), url);
    if (strncmp(text, UNIX_SCHEME, strlen(UNIX_SCHEME)) == 0)
        return unix_parse(span_of(text + strlen(UNIX_SCHEME)), url);
    if (strncmp(text, MEMORY_URL, strlen(MEMORY_URL)) != 0)
        return "the URL must begin with redis://, redis+unix:// or memory://";
    if (text[strlen(MEMORY_URL)])
        return "after memory:// nothing may follow";
    url->kind = BACKEND_KIND_MEMORY;
    return NULL;
}

int backend_url_parse(const char *text, struct backend_url *ret_url, const char **ret_problem)
{
    struct backend_url url = {0};
    const char *problem = url_parse(text, &url);

    if (problem) {
        *ret_problem = problem;
        return -EINVAL;
    }
    *ret_url = url;
    return 0;
}

void backend_url_mask(const char *text, char *ret_text, size_t size)
{
    struct span rest = span_of(text);
    struct span after, colon;

    lb_assert(size >= BACKEND_URL_BYTES_MAX + sizeof(PASSWORD_MASK));
    after = span_split(&rest, '@');
    if (!after.start || strncmp(text, TCP_SCHEME, strlen(TCP_SCHEME)) != 0) {
        (void)snprintf(ret_text, size, "%s", text);
        return;
    }
    rest.start += strlen(TCP_SCHEME);
    rest.length -= strlen(TCP_SCHEME);
    colon = span_split(&rest, ':');
    (void)snprintf(ret_text, size, TCP_SCHEME "%.*s%s@%s", (int)rest.length, rest.start,
                   colon.start ? ":" PASSWORD_MASK : "", after.start);
}
