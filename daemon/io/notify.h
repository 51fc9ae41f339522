// What the service manager is told (sd_notify). It may be slow to listen, and a renewal must not
// wait for it, so nothing in here ever blocks: what it does not take now is told later. Without a
// service manager nothing happens.
#ifndef LB_IO_NOTIFY_H
#define LB_IO_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "proto/macros.h"

#define NOTIFY_TEXT_BYTES_MAX 96
#define NOTIFY_TEXTS_MAX      8

struct notifier {
    int fd; // -1: there is nobody to tell
    struct sockaddr_un address;
    socklen_t address_length;
    uv_timer_t timer; // to try again, and to tell a changed status not too often
    char texts[NOTIFY_TEXTS_MAX][NOTIFY_TEXT_BYTES_MAX]; // not yet told, in order
    size_t texts_count;
    char status[NOTIFY_TEXT_BYTES_MAX];
    bool is_status_told;
};

// Looks for a service manager in the environment. Returns 0 or a negative errno.
int notifier_init(struct notifier *notifier, uv_loop_t *loop) LB_MUST_CHECK;

// Tries once more to tell what is left, and closes the timer.
void notifier_close(struct notifier *notifier);

// READY=1: the socket is served. Said also while Redis is down, and at the end of a reload.
void notify_ready(struct notifier *notifier);

// RELOADING=1, to be followed by notify_ready().
void notify_reloading(struct notifier *notifier);

// STOPPING=1: the drain has begun.
void notify_stopping(struct notifier *notifier);

// STATUS= with the state of the backend and the number of locks, if that is news. May be called as
// often as one likes.
void notify_status(struct notifier *notifier, bool up, size_t locks);

// WATCHDOG=1. To be called only when the loop turned and a sweep ran.
void notify_watchdog(struct notifier *notifier);

// How often the watchdog wants to be fed, in ms; 0: there is none.
uint64_t notify_watchdog_ms(void);

#endif
