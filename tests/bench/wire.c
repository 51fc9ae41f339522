// A socket and the lines that come from it. What they mean is not looked at here.
#include "tests/bench/bench_load.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void wire_open(struct wire *wire, const char *address)
{
    wire->fd = address_connect(address);
    wire->in = memory(NULL, WIRE_ROOM);
    wire->in_used = 0;
}

// Waits when the socket is full, which few short lines never make it.
void wire_send(const struct wire *wire, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = send(wire->fd, text, length, MSG_NOSIGNAL);

        if (count < 0 && errno != EINTR)
            die("a connection, at sending");
        if (count > 0) {
            text += count;
            length -= (size_t)count;
        }
    }
}

bool wire_receive(struct wire *wire, int flags)
{
    ssize_t count;

    if (wire->in_used == WIRE_ROOM)
        die_of("a connection", "a line is too long");
    count = recv(wire->fd, wire->in + wire->in_used, WIRE_ROOM - wire->in_used, flags);
    if (count == 0)
        die_of("a connection", "the server closed it");
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            die("a connection, at receiving");
        return false;
    }
    wire->in_used += (size_t)count;
    return true;
}

char *wire_line(struct wire *wire, size_t *position)
{
    char *line = wire->in + *position;
    char *end = memchr(line, '\n', wire->in_used - *position);

    if (!end)
        return NULL;
    *end = '\0';
    *position = (size_t)(end + 1 - wire->in);
    return line;
}

void wire_consume(struct wire *wire, size_t position)
{
    wire->in_used -= position;
    memmove(wire->in, wire->in + position, wire->in_used);
}
