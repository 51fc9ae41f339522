// The functions that the linker puts in the place of malloc and calloc (--wrap).
#include "tests/sim/allocation.h"

#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static struct sim *armed;

void allocation_may_fail(struct sim *sim)
{
    armed = sim;
}

void *__wrap_malloc(size_t size)
{
    return armed && sim_fault(armed, FAULT_ALLOCATION_FAILS) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return armed && sim_fault(armed, FAULT_ALLOCATION_FAILS) ? NULL : __real_calloc(count, size);
}
