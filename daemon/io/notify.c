// Talking to the service manager. libsystemd's sd_notify() is not used: it waits while the manager
// is too busy to read.
#include "daemon/io/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS  100
#define STATUS_MS 1000

// Fills in where the manager listens: a path, or an abstract name that begins with '@'.
static bool address_find(struct notifier *notifier)
{
    const char *name = getenv("NOTIFY_SOCKET");
    size_t length = name ? strlen(name) : 0;

    if (length < 2 || length >= sizeof(notifier->address.sun_path))
        return false;
    notifier->address.sun_family = AF_UNIX;
    memcpy(notifier->address.sun_path, name, length + 1);
    notifier->address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
    if (*name != '@')
        return *name == '/';
    notifier->address.sun_path[0] = '\0';
    notifier->address_length--;
    return true;
}

// False when the manager does not listen just now.
static bool text_send(const struct notifier *notifier, const char *text)
{
    ssize_t sent = sendto(notifier->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&notifier->address, notifier->address_length);

    return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS && errno != EINTR);
}

static void on_timer(uv_timer_t *timer);

static void timer_start(struct notifier *notifier, uint64_t after_ms)
{
    if (!uv_is_active((uv_handle_t *)&notifier->timer))
        (void)uv_timer_start(&notifier->timer, on_timer, after_ms, 0);
}

// Tells what waits to be told. False when some of it still waits.
static bool texts_flush(struct notifier *notifier)
{
    size_t told = 0;

    while (told < notifier->texts_count && text_send(notifier, notifier->texts[told]))
        told++;
    notifier->texts_count -= told;
    memmove(notifier->texts[0], notifier->texts[told],
            notifier->texts_count * sizeof(notifier->texts[0]));
    return notifier->texts_count == 0;
}

static void status_flush(struct notifier *notifier)
{
    if (!notifier->is_status_told)
        notifier->is_status_told = text_send(notifier, notifier->status);
}

static void on_timer(uv_timer_t *timer)
{
    struct notifier *notifier = timer->data;

    if (texts_flush(notifier))
        status_flush(notifier);
    if (notifier->texts_count || !notifier->is_status_told)
        timer_start(notifier, RETRY_MS);
}

// More than fit are only told by a program that was reloaded many times while nobody listened: the
// manager needs the last of them.
static void text_queue(struct notifier *notifier, const char *text)
{
    if (notifier->fd < 0)
        return;
    if (notifier->texts_count == NOTIFY_TEXTS_MAX)
        memmove(notifier->texts[0], notifier->texts[1],
                --notifier->texts_count * sizeof(notifier->texts[0]));
    (void)snprintf(notifier->texts[notifier->texts_count++], NOTIFY_TEXT_BYTES_MAX, "%s", text);
    if (!texts_flush(notifier))
        timer_start(notifier, RETRY_MS);
}

int notifier_init(struct notifier *notifier, uv_loop_t *loop)
{
    *notifier = (struct notifier){.fd = -1, .is_status_told = true};
    (void)uv_timer_init(loop, &notifier->timer);
    notifier->timer.data = notifier;
    if (!address_find(notifier))
        return 0;
    notifier->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return notifier->fd < 0 ? -errno : 0;
}

void notifier_close(struct notifier *notifier)
{
    if (notifier->fd >= 0) {
        (void)texts_flush(notifier);
        (void)close(notifier->fd);
    }
    notifier->fd = -1;
    uv_close((uv_handle_t *)&notifier->timer, NULL);
}

void notify_ready(struct notifier *notifier)
{
    text_queue(notifier, "READY=1");
}

void notify_reloading(struct notifier *notifier)
{
    char text[NOTIFY_TEXT_BYTES_MAX];
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld",
                   (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    text_queue(notifier, text);
}

void notify_stopping(struct notifier *notifier)
{
    text_queue(notifier, "STOPPING=1");
}

void notify_status(struct notifier *notifier, bool up, size_t locks)
{
    char text[NOTIFY_TEXT_BYTES_MAX];

    if (notifier->fd < 0)
        return;
    (void)snprintf(text, sizeof(text), "STATUS=backend %s, %zu locks", up ? "up" : "down", locks);
    if (strcmp(text, notifier->status) == 0)
        return;
    memcpy(notifier->status, text, sizeof(text));
    notifier->is_status_told = false;
    timer_start(notifier, STATUS_MS);
}

void notify_watchdog(struct notifier *notifier)
{
    if (notifier->fd >= 0)
        (void)text_send(notifier, "WATCHDOG=1");
}

uint64_t notify_watchdog_ms(void)
{
    uint64_t usec;

    if (sd_watchdog_enabled(0, &usec) <= 0)
        return 0;
    return usec / 2000 > 0 ? usec / 2000 : 1;
}
