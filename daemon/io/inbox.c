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

static int inbox_grow(struct inbox *inbox)
{
    struct inbox_entry *entries = calloc(inbox->capacity * 2, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < inbox->count; i++)
        entries[i] = inbox->entries[(inbox->first + i) % inbox->capacity];
    free(inbox->entries);
    inbox->entries = entries;
    inbox->capacity *= 2;
    inbox->first = 0;
    return 0;
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
        const char **texts[] = {&event->facts.role, &event->facts.version, &event->facts.policy};

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
    } else if (event->kind == EVENT_BACKEND_OUTCOME) {
        keep_text(entry, 0, event->outcome.holder.host);
    }
}

int inbox_push(struct inbox *inbox, const struct event *event)
{
    if (inbox->count == inbox->capacity) {
        int r = inbox_grow(inbox);

        if (r < 0)
            return r;
    }

    struct inbox_entry *entry = &inbox->entries[(inbox->first + inbox->count++) % inbox->capacity];

    entry->event = *event;
    copy_texts(entry);
    return 0;
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
