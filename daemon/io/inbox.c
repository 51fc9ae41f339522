// A growing ring of events. It starts large enough for any quiet day, and only a burst of outcomes
// (a broken link with thousands of operations in flight) makes it grow.
#include "daemon/io/inbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INBOX_CAPACITY 1024

int inbox_init(struct inbox *inbox)
{
    struct inbox_entry *entries = calloc(INBOX_CAPACITY, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    *inbox = (struct inbox){.entries = entries, .capacity = INBOX_CAPACITY};
    return 0;
}

void inbox_deinit(struct inbox *inbox)
{
    free(inbox->entries);
    *inbox = (struct inbox){0};
}

static int inbox_grow(struct inbox *inbox, size_t capacity)
{
    struct inbox_entry *entries = calloc(capacity, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < inbox->count; i++)
        entries[i] = inbox->entries[(inbox->first + i) % inbox->capacity];
    free(inbox->entries);
    inbox->entries = entries;
    inbox->capacity = capacity;
    inbox->first = 0;
    return 0;
}

int inbox_reserve(struct inbox *inbox, size_t room)
{
    size_t needed = inbox->count + room;

    if (needed <= inbox->capacity / 2 || inbox_grow(inbox, 4 * needed) == 0)
        return 0;
    return needed <= inbox->capacity ? 0 : -ENOMEM;
}

static void keep_text(struct inbox_entry *entry, int index, const char *text)
{
    if (text)
        (void)snprintf(entry->texts[index], sizeof(entry->texts[index]), "%s", text);
}

// Points the event's texts, where it has any, at the entry's own copies.
static void point_at_texts(struct inbox_entry *entry)
{
    struct event *event = &entry->event;

    if (event->kind == EVENT_BACKEND_UP) {
        const char **texts[] = {&event->facts.role, &event->facts.version, &event->facts.policy,
                                &event->facts.run_id};

        for (int i = 0; i < INBOX_TEXTS; i++) {
            if (*texts[i])
                *texts[i] = entry->texts[i];
        }
    } else if (event->kind == EVENT_BACKEND_OUTCOME && event->outcome.holder.host) {
        event->outcome.holder.host = entry->texts[0];
    }
}

static void copy_texts(struct inbox_entry *entry)
{
    const struct event *event = &entry->event;

    if (event->kind == EVENT_BACKEND_UP) {
        keep_text(entry, 0, event->facts.role);
        keep_text(entry, 1, event->facts.version);
        keep_text(entry, 2, event->facts.policy);
        keep_text(entry, 3, event->facts.run_id);
    } else if (event->kind == EVENT_BACKEND_OUTCOME) {
        keep_text(entry, 0, event->outcome.holder.host);
    }
}

void inbox_push(struct inbox *inbox, const struct event *event)
{
    lb_assert(inbox->count < inbox->capacity);

    struct inbox_entry *entry = &inbox->entries[(inbox->first + inbox->count++) % inbox->capacity];

    entry->event = *event;
    copy_texts(entry);
}

void inbox_return(struct inbox *inbox, const struct inbox_entry *entry)
{
    lb_assert(inbox->count < inbox->capacity);
    inbox->first = (inbox->first + inbox->capacity - 1) % inbox->capacity;
    inbox->entries[inbox->first] = *entry;
    inbox->count++;
}

const struct event *inbox_last(const struct inbox *inbox)
{
    if (!inbox->count)
        return NULL;
    return &inbox->entries[(inbox->first + inbox->count - 1) % inbox->capacity].event;
}

bool inbox_pop(struct inbox *inbox, struct inbox_entry *ret_entry)
{
    if (!inbox->count)
        return false;
    *ret_entry = inbox->entries[inbox->first];
    point_at_texts(ret_entry);
    inbox->first = (inbox->first + 1) % inbox->capacity;
    inbox->count--;
    return true;
}
