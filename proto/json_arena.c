// The memory behind jansson while a request is read. It may not call malloc() while it is open,
// since the point of it is that reading cannot run out of memory half-way.
#include "proto/json_arena.h"

#include <errno.h>
#include <jansson.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

struct json_arena {
    char *space;
    size_t bytes; // a multiple of the alignment
    size_t used;
    bool is_open;
    bool is_short;
};

// A name service module that uses jansson may run on a thread of the resolver.
static _Thread_local struct json_arena arena;

static size_t json_arena_round(size_t bytes)
{
    const size_t mask = alignof(max_align_t) - 1;

    return (bytes + mask) & ~mask;
}

static void *json_arena_take(size_t bytes)
{
    char *taken;

    if (!arena.is_open)
        return malloc(bytes);
    // Nothing more is given then, however small: a text that lost its end in the lexer must find no
    // memory to be copied to.
    if (arena.is_short || bytes > arena.bytes - arena.used) {
        arena.is_short = true;
        return NULL;
    }
    taken = arena.space + arena.used;
    arena.used += json_arena_round(bytes);
    return taken;
}

static void json_arena_give(void *memory)
{
    if ((uintptr_t)memory - (uintptr_t)arena.space >= arena.bytes)
        free(memory);
}

int json_arena_init(size_t bytes)
{
    size_t rounded = json_arena_round(bytes);
    char *space = malloc(rounded);

    lb_assert(!arena.is_open);
    if (!space)
        return -ENOMEM;
    free(arena.space);
    arena = (struct json_arena){.space = space, .bytes = rounded};
    json_set_alloc_funcs(json_arena_take, json_arena_give);
    return 0;
}

void json_arena_open(void)
{
    lb_assert(arena.space && !arena.is_open);
    arena.used = 0;
    arena.is_open = true;
    arena.is_short = false;
}

bool json_arena_is_short(void)
{
    return arena.is_short;
}

void json_arena_close(void)
{
    lb_assert(arena.is_open);
    arena.is_open = false;
}
