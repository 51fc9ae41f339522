// Keys in arrays, found by a small hash table of names: there are only a few locks. Copies of the
// whole are made right before the first write of a period, since up to then what is there is also
// what was there when the period began.
#include "tests/sim/keyspace.h"

#include <string.h>

#include "proto/macros.h"

static size_t name_slot(const char *name, size_t length)
{
    uint64_t hash = 14695981039346656037U;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211U;
    return (hash ^ hash >> 32) % KEYSPACE_SLOTS;
}

static bool name_is(const struct key_name *known, const char *name, size_t length)
{
    return known->length == length && memcmp(known->text, name, length) == 0;
}

// The slot that the name is in, or would be in.
static size_t name_find(const struct keyspace *keyspace, const char *name, size_t length)
{
    size_t slot = name_slot(name, length);

    while (keyspace->slots[slot] &&
           !name_is(&keyspace->names[keyspace->slots[slot] - 1], name, length))
        slot = (slot + 1) % KEYSPACE_SLOTS;
    return slot;
}

size_t keyspace_number(struct keyspace *keyspace, const char *name, size_t length)
{
    size_t slot = name_find(keyspace, name, length);
    struct key_name *known;

    if (keyspace->slots[slot])
        return keyspace->slots[slot] - 1u;
    lb_assert(keyspace->count < KEYSPACE_KEYS_MAX && length <= SERVER_VALUE_BYTES_MAX);
    known = &keyspace->names[keyspace->count++];
    memcpy(known->text, name, length);
    known->text[length] = '\0';
    known->length = length;
    keyspace->slots[slot] = (uint8_t)keyspace->count;
    return keyspace->count - 1;
}

// As Redis 7: a key is still there in the millisecond that it expires at.
static bool value_is_there(const struct key_value *value, int64_t now_ms)
{
    return value->is_there && now_ms <= value->expires_ms;
}

struct key_value *keyspace_find(struct keyspace *keyspace, int database, size_t number,
                                int64_t now_ms)
{
    struct key_value *value = &keyspace->now.of[database][number];

    value->is_there = value_is_there(value, now_ms);
    return value->is_there ? value : NULL;
}

const struct key_value *keyspace_look(const struct keyspace *keyspace, const char *name,
                                      int64_t now_ms)
{
    size_t slot = name_find(keyspace, name, strlen(name));
    size_t number = keyspace->slots[slot] - 1u;

    if (!keyspace->slots[slot] || !keyspace_is_there(keyspace, number, now_ms))
        return NULL;
    return &keyspace->now.of[SERVER_DATABASE][number];
}

bool keyspace_is_there(const struct keyspace *keyspace, size_t number, int64_t now_ms)
{
    return value_is_there(&keyspace->now.of[SERVER_DATABASE][number], now_ms);
}

// Keys that were not named yet when `from` was copied are not in it.
static void values_copy(const struct keyspace *keyspace, struct key_values *to,
                        const struct key_values *from)
{
    for (int i = 0; i < KEYSPACE_DATABASES; i++)
        memcpy(to->of[i], from->of[i], keyspace->count * sizeof(from->of[i][0]));
}

static void save(struct keyspace *keyspace, int64_t period)
{
    struct key_values *place = &keyspace->saves[keyspace->saves_next];

    values_copy(keyspace, place, &keyspace->now);
    place->period = period;
    keyspace->saves_next = (keyspace->saves_next + 1) % KEYSPACE_SAVES_MAX;
    if (keyspace->saves_count < KEYSPACE_SAVES_MAX)
        keyspace->saves_count++;
}

static struct key_values *save_find(struct keyspace *keyspace, size_t age)
{
    size_t at = keyspace->saves_next + 2 * KEYSPACE_SAVES_MAX - 1 - age;

    return &keyspace->saves[at % KEYSPACE_SAVES_MAX];
}

void keyspace_keep(struct keyspace *keyspace, int64_t true_us)
{
    int64_t second = true_us / KEYSPACE_JOURNAL_US + 1;
    int64_t period = true_us / KEYSPACE_SAVE_US + 1;

    if (keyspace->journal.period == second)
        return;
    values_copy(keyspace, &keyspace->journal, &keyspace->now);
    keyspace->journal.period = second;
    if (keyspace->saves_count == 0 || save_find(keyspace, 0)->period != period)
        save(keyspace, period);
}

void keyspace_restore_second(struct keyspace *keyspace, int64_t true_us)
{
    keyspace_keep(keyspace, true_us);
    values_copy(keyspace, &keyspace->now, &keyspace->journal);
}

void keyspace_restore_save(struct keyspace *keyspace, size_t age, int64_t true_us)
{
    keyspace_keep(keyspace, true_us);
    if (age >= keyspace->saves_count)
        age = keyspace->saves_count - 1;
    values_copy(keyspace, &keyspace->now, save_find(keyspace, age));
    values_copy(keyspace, &keyspace->journal, &keyspace->now);
}

void keyspace_restore_nothing(struct keyspace *keyspace, int64_t true_us)
{
    keyspace_clear(keyspace, true_us);
    values_copy(keyspace, &keyspace->journal, &keyspace->now);
}

void keyspace_clear(struct keyspace *keyspace, int64_t true_us)
{
    keyspace_keep(keyspace, true_us);
    for (int i = 0; i < KEYSPACE_DATABASES; i++) {
        for (size_t number = 0; number < keyspace->count; number++)
            keyspace->now.of[i][number].is_there = false;
    }
}

void keyspace_expire(struct keyspace *keyspace, int64_t now_ms)
{
    for (int i = 0; i < KEYSPACE_DATABASES; i++) {
        for (size_t number = 0; number < keyspace->count; number++)
            (void)keyspace_find(keyspace, i, number, now_ms);
    }
}

size_t keyspace_size(const struct keyspace *keyspace, int64_t now_ms)
{
    size_t size = 0;

    for (size_t number = 0; number < keyspace->count; number++)
        size += keyspace_is_there(keyspace, number, now_ms);
    return size;
}
