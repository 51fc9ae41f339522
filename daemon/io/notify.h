// What the service manager is told (sd_notify); nothing happens without one.
#ifndef LB_IO_NOTIFY_H
#define LB_IO_NOTIFY_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

// READY=1: the socket is served. Said also while Redis is down.
void notify_ready(void);

// RELOADING=1, to be followed by notify_ready().
void notify_reloading(void);

void notify_stopping(void);

// STATUS= with the state of the backend and the number of locks; sent when it changed.
void notify_status(bool up, size_t owed);

// How often the watchdog wants to be fed, in ms; 0: there is none.
uint64_t notify_watchdog_ms(void);

// WATCHDOG=1. To be called only when the loop turned and a sweep ran.
void notify_watchdog(void);

#endif
