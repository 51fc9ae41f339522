// Connecting: the socket and the first exchange. A broker that accepts but does not answer
// (stopped, or hanging) is found out here, so that no later call has to guess.
#include "client/lib/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/options.h"
#include "proto/request.h"

const char *client_socket_path(const char *path)
{
    if (!path)
        path = getenv("LOCKBROKER_SOCKET");
    return path && path[0] != '\0' ? path : LB_SOCKET_PATH_DEFAULT;
}

// connect(2) on a Unix socket waits while the listener's backlog is full, at most for the time that
// a write may take.
static int connect_within(int fd, const struct sockaddr_un *address, int64_t deadline_ms)
{
    struct timeval limit;
    int64_t left_ms;

    for (;;) {
        left_ms = deadline_ms - client_now_ms();
        if (left_ms <= 0)
            return -ETIMEDOUT;
        limit = (struct timeval){.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)
            return -errno;
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
            return 0;
        if (errno == EAGAIN)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

// connect(2) says of a file that is no socket only that nobody listens.
static int connect_failure(const char *path, int r)
{
    struct stat status;

    if (r == -ECONNREFUSED && stat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
        return -ENOTSOCK;
    return r;
}

static int connect_socket(const char *path, int64_t deadline_ms, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    int fd;
    int r;

    if (length >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, length);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    r = connect_within(fd, &address, deadline_ms);
    if (r != 0) {
        close(fd);
        return connect_failure(path, r);
    }
    *ret_fd = fd;
    return 0;
}

static int connect_greet(struct lb_client *client, const char *name, int64_t timeout_ms)
{
    struct request request;
    struct call *call = NULL;
    int r;

    request_init(&request);
    request.op = OP_HELLO;
    request.given = REQUEST_F_VERSION;
    request.version = LB_PROTOCOL_VERSION;
    if (client_set_text(request.client, sizeof(request.client),
                        name ? name : program_invocation_short_name))
        request.given |= REQUEST_F_CLIENT;
    else if (name)
        return -EINVAL;
    r = client_request(client, &request, timeout_ms, &call);
    if (r == 0 && call->incoming->reply.max_wait_ms >= 0)
        client->max_wait_ms = call->incoming->reply.max_wait_ms;
    if (r == 0 && call->incoming->reply.ttl_max_ms >= 0)
        client->ttl_max_ms = call->incoming->reply.ttl_max_ms;
    calls_free(&client->calls, call);
    return r;
}

// The options, checked. Returns 0, -EINVAL or -EBADR.
static int connect_options(const struct lb_connect_options *options, struct lb_connect_options *own)
{
    int r = options ? options_copy(own, sizeof(*own), options, options->size) : 0;

    if (r != 0)
        return r;
    if (own->connect_timeout_ms < 0 || own->call_timeout_ms < 0)
        return -EINVAL;
    if (own->connect_timeout_ms == 0)
        own->connect_timeout_ms = CLIENT_TIMEOUT_MS;
    if (own->call_timeout_ms == 0)
        own->call_timeout_ms = CLIENT_TIMEOUT_MS;
    if (own->message && own->message_size > 0)
        own->message[0] = '\0';
    return 0;
}

int lb_connect(const char *path, const struct lb_connect_options *options,
               struct lb_client **ret_client)
{
    struct lb_connect_options own = {.size = sizeof(own)};
    struct lb_client *client;
    int64_t deadline_ms;
    int64_t left_ms;
    int fd = -1;
    int r = connect_options(options, &own);

    *ret_client = NULL;
    if (r != 0)
        return r;
    deadline_ms = client_now_ms() + own.connect_timeout_ms;
    r = connect_socket(client_socket_path(path), deadline_ms, &fd);
    if (r != 0)
        return r;
    r = client_new(fd, &client);
    if (r != 0) {
        close(fd);
        return r;
    }
    client->call_timeout_ms = own.call_timeout_ms;
    left_ms = deadline_ms - client_now_ms();
    r = connect_greet(client, own.client, left_ms > 1 ? left_ms : 1);
    if (r != 0) {
        if (own.message && own.message_size > 0)
            (void)snprintf(own.message, own.message_size, "%s", lb_last_message(client));
        lb_close(client);
        return r;
    }
    *ret_client = client;
    return 0;
}
