// Events that wait to be stepped: a queue in order of arrival. Texts that an event borrows from the
// backend are copied into the queue, so that it may post from anywhere.
#ifndef LB_IO_INBOX_H
#define LB_IO_INBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/event.h"
#include "proto/macros.h"

#define INBOX_TEXTS    4
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

// Sees to it that at least `room` more events fit. Returns 0 or -ENOMEM. It asks for memory long
// before there is need of it, so that one refusal does no harm.
int inbox_reserve(struct inbox *inbox, size_t room) LB_MUST_CHECK;

// Adds an event that a backend posted (up, down or outcome) or that borrows no text. There must be
// room for it.
void inbox_push(struct inbox *inbox, const struct event *event);

// Puts an entry that was taken out back in front of all others. There must be room for it.
void inbox_return(struct inbox *inbox, const struct inbox_entry *entry);

// The event added last, or NULL when there is none in the queue.
const struct event *inbox_last(const struct inbox *inbox);

// Takes the oldest entry out. False when there is none.
bool inbox_pop(struct inbox *inbox, struct inbox_entry *ret_entry);

#endif
