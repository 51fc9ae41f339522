// Allocates past malloc() and calloc(): those two are wrapped, so that they can fail on purpose.
#include "tests/sim/memory.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "proto/macros.h"

void *sim_alloc(size_t size)
{
    size_t alignment = alignof(max_align_t);
    size_t whole = (size + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, whole ? whole : alignment);

    lb_assert(memory);
    return memset(memory, 0, size);
}
