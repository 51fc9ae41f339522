// A connection to a broker, without blocking: lines in, lines out. What a line means is not looked
// at here, but for finding its members by name.
#include "tests/integration/waiting/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// A reply or an event is no longer than that, with its newline.
#define IN_ROOM (256 * 1024 + 1)

void link_open(struct link *link, const char *path, int broker)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path))
        die("the socket's path");
    strcpy(address.sun_path, path);
    link->broker = broker;
    link->in = memory(NULL, IN_ROOM);
    link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        die(path);
}

void link_send(struct link *link, const char *line, size_t length)
{
    if (link->out_used + length > link->out_room) {
        link->out_room = 2 * link->out_room + length;
        link->out = memory(link->out, link->out_room);
    }
    memcpy(link->out + link->out_used, line, length);
    link->out_used += length;
}

void link_flush(struct link *link)
{
    ssize_t count = 0;

    if (link->out_used > 0)
        count = send(link->fd, link->out, link->out_used, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR)
        die("the connection, at sending");
    if (count > 0) {
        link->out_used -= (size_t)count;
        memmove(link->out, link->out + count, link->out_used);
    }
}

void link_read(struct link *link, void (*take)(void *context, char *line), void *context)
{
    ssize_t count = recv(link->fd, link->in + link->in_used, IN_ROOM - link->in_used, MSG_DONTWAIT);
    char *line = link->in;
    char *end;

    if (count == 0)
        die("the broker closed the connection");
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            die("the connection, at receiving");
        return;
    }
    link->in_used += (size_t)count;
    while ((end = memchr(line, '\n', link->in_used - (size_t)(line - link->in)))) {
        *end = '\0';
        take(context, line);
        line = end + 1;
    }
    link->in_used -= (size_t)(line - link->in);
    memmove(link->in, line, link->in_used);
    if (link->in_used == IN_ROOM)
        die("a line that is too long");
}

static const char *line_value(const char *line, const char *name)
{
    char pattern[64];
    const char *found;

    (void)snprintf(pattern, sizeof(pattern), "\"%s\":", name);
    found = strstr(line, pattern);
    return found ? found + strlen(pattern) : NULL;
}

int64_t line_number(const char *line, const char *name, int64_t otherwise)
{
    const char *value = line_value(line, name);

    return value ? strtoll(value, NULL, 10) : otherwise;
}

bool line_text(const char *line, const char *name, char *text, size_t size)
{
    const char *value = line_value(line, name);
    size_t length;

    if (!value || *value != '"')
        return false;
    length = strcspn(++value, "\"");
    if (length >= size)
        length = size - 1;
    memcpy(text, value, length);
    text[length] = '\0';
    return true;
}
