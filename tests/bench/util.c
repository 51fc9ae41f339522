// Clocks, memory, addresses and names for the load program. Whatever fails here ends the program:
// a benchmark that goes on after an error measures something else.
#include "tests/bench/bench_load.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t clock_ns(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        die("the clock");
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sleep_until(int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = (long)(until_ns % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

void *memory(void *old, size_t size)
{
    void *fresh = realloc(old, size);

    if (!fresh)
        die("memory");
    return fresh;
}

void die(const char *what)
{
    die_of(what, strerror(errno));
}

void die_of(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_load: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

// A path, or host:port. The host is a number: nothing is resolved.
bool address_is_path(const char *address, char *host, size_t host_size, int *ret_port)
{
    const char *colon = strrchr(address, ':');

    if (strchr(address, '/') || !colon)
        return true;
    if ((size_t)(colon - address) >= host_size)
        die_of(address, "the host is too long");
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    *ret_port = atoi(colon + 1);
    return false;
}

static int path_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path))
        die_of(path, "the path is too long");
    strcpy(address.sun_path, path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        die(path);
    return fd;
}

int address_connect(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int yes = 1;
    char host[64];
    int port;
    int fd;

    if (address_is_path(text, host, sizeof(host), &port))
        return path_connect(text);
    address.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die_of(text, "no IPv4 address");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
        die(text);
    return fd;
}

void key_name(const struct bench *bench, int contender, char *name)
{
    int length = bench->is_one_key ? snprintf(name, KEY_SIZE, "%s", bench->key)
                                   : snprintf(name, KEY_SIZE, "%s-%d", bench->key, contender);

    if (length < 0 || length >= KEY_SIZE)
        die_of(bench->key, "the key is too long");
}

// Like the random ones of others in length, and never the same twice.
void token_make(int contender, char *token)
{
    static uint64_t count;

    (void)snprintf(token, TOKEN_SIZE, "%08x%08x%016llx", (unsigned)getpid(), (unsigned)contender,
                   (unsigned long long)++count);
}

struct span span_from(const struct bench *bench, int64_t start_ns)
{
    struct span span = {.start_ns = start_ns};

    span.began_ns = start_ns + bench->warm_ms * 1000000;
    span.ended_ns = span.began_ns + bench->run_ms * 1000000;
    return span;
}
