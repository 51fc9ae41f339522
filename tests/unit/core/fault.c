// The wrappers behind fault.h. Tests of the core have one thread.
#include "tests/unit/core/fault.h"

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool is_armed;
static long fail_at = -1;
static long calls;

void fault_set(long count)
{
    fail_at = count;
    calls = 0;
}

long fault_count(void)
{
    return calls;
}

void fault_arm(void)
{
    is_armed = true;
}

void fault_disarm(void)
{
    is_armed = false;
}

static bool fails(void)
{
    return is_armed && calls++ == fail_at;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}
