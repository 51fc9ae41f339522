// Wraps uv_getaddrinfo. A question under way cannot always be stopped, so it has memory of its own
// and may outlive whoever asked.
#include "daemon/redis/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

struct resolve {
    uv_getaddrinfo_t request;
    void (*on_done)(void *context, int status, const struct resolve_result *result);
    void *context;
};

bool resolve_host_is_valid(const char *host)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    struct resolve_result ignored;
    size_t length = strlen(host);

    if (length < 1 || length > RESOLVE_HOST_BYTES_MAX)
        return false;
    if (host[0] != '-' && strspn(host, letters) == length)
        return true;
    return resolve_numeric(host, 1, &ignored);
}

bool resolve_numeric(const char *host, int port, struct resolve_result *ret_result)
{
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;

    if (uv_ip4_addr(host, port, &ipv4) == 0)
        memcpy(&ret_result->addresses[0], &ipv4, sizeof(ipv4));
    else if (uv_ip6_addr(host, port, &ipv6) == 0)
        memcpy(&ret_result->addresses[0], &ipv6, sizeof(ipv6));
    else
        return false;
    ret_result->count = 1;
    return true;
}

static void addresses_copy(const struct addrinfo *list, struct resolve_result *ret_result)
{
    ret_result->count = 0;
    for (; list && ret_result->count < RESOLVE_ADDRESSES_MAX; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        if (list->ai_addrlen <= sizeof(ret_result->addresses[0]))
            memcpy(&ret_result->addresses[ret_result->count++], list->ai_addr, list->ai_addrlen);
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct resolve *resolve = request->data;
    struct resolve_result result;

    addresses_copy(status == 0 ? list : NULL, &result);
    uv_freeaddrinfo(list);
    if (status == 0 && result.count == 0)
        status = UV_EAI_NODATA;
    if (resolve->on_done)
        resolve->on_done(resolve->context, status, &result);
    free(resolve);
}

int resolve_start(uv_loop_t *loop, const char *host, int port,
                  void (*on_done)(void *context, int status, const struct resolve_result *result),
                  void *context, struct resolve **ret_resolve)
{
    static const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct resolve *resolve = calloc(1, sizeof(*resolve));
    char service[16];
    int rc;

    if (!resolve)
        return -ENOMEM;
    resolve->request.data = resolve;
    resolve->on_done = on_done;
    resolve->context = context;
    (void)snprintf(service, sizeof(service), "%d", port);
    rc = uv_getaddrinfo(loop, &resolve->request, on_resolved, host, service, &hints);
    if (rc < 0) {
        free(resolve);
        return rc;
    }
    *ret_resolve = resolve;
    return 0;
}

void resolve_abandon(struct resolve *resolve)
{
    resolve->on_done = NULL;
    (void)uv_cancel((uv_req_t *)&resolve->request);
}
