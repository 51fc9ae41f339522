// Memory for the one JSON tree that is being read, taken once and used again for every tree.
//
// The lexer of jansson (2.14 and before) goes on when its buffer could not grow: a malloc that
// fails there leaves out a byte of a text, or, when that is the closing quote, overruns a block.
// That can be neither seen nor undone afterwards, so that growth must not fail.
#ifndef LB_PROTO_JSON_ARENA_H
#define LB_PROTO_JSON_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/macros.h"

// Takes the memory for this thread, in place of what an earlier call took, and gives jansson
// allocation functions that use it between open and close, and malloc() and free() at all other
// times and on all other threads. They are in force for the whole process: for programs of our own
// alone, not for a library. No arena may be open. Returns 0 or -ENOMEM.
int json_arena_init(size_t bytes) LB_MUST_CHECK;

// From here on jansson takes its memory from the arena, on this thread.
void json_arena_open(void);

// True when something did not fit since json_arena_open(); whatever was read is worthless then.
bool json_arena_is_short(void);

// Drops all at once: what was read need not, and then must not, be given back to jansson.
void json_arena_close(void);

#endif
