// The countdown behind alloc.h. It counts on one thread alone: check's tests have no other.
#include "tests/unit/proto/alloc.h"

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool is_armed;
static long countdown;
static long calls;

void alloc_fail_after(long count)
{
    is_armed = true;
    countdown = count;
    calls = 0;
}

long alloc_restore(void)
{
    is_armed = false;
    return calls;
}

static bool alloc_fails(void)
{
    if (!is_armed)
        return false;
    calls++;
    return countdown-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fails() ? NULL : __real_calloc(count, size);
}
