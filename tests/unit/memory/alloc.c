// Stands in front of malloc(), by the linker's --wrap.
#include "tests/unit/memory/alloc.h"

#include <stddef.h>

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool is_armed;
static bool has_failed;

void alloc_fail_next(void)
{
    is_armed = true;
    has_failed = false;
}

bool alloc_has_failed(void)
{
    return has_failed;
}

void *__wrap_malloc(size_t size)
{
    if (!is_armed)
        return __real_malloc(size);
    is_armed = false;
    has_failed = true;
    return NULL;
}
