// Events that wait to be stepped: a queue in order of arrival. Texts that an event borrows from the
// backend are copied into the queue, so that it may post from anywhere.
#ifndef LB_IO_INBOX_H
#define LB_IO_INBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/event.h"
#include "proto/macros.h"

#define INBOX_TEXTS    3
#define INBOX_TEXT_MAX 64

struct inbox_entry {
    struct event event;
    char texts[INBOX_TEXTS][INBOX_TEXT_MAX + 1];
};

struct inbox {
    struct inbox_entry *entries; // a ring
    size_t capacity;
    size_t first;
    size_t count;
};

// Returns 0 or -ENOMEM.
int inbox_init(struct inbox *inbox) LB_MUST_CHECK;
void inbox_deinit(struct inbox *inbox);

// Adds an event that a backend posted (up, down or outcome) or that borrows no text. Returns 0, or
// -ENOMEM when the queue is full and cannot grow.
int inbox_push(struct inbox *inbox, const struct event *event) LB_MUST_CHECK;

// Takes the oldest entry out. False when there is none.
bool inbox_pop(struct inbox *inbox, struct inbox_entry *ret_entry);

#endif
