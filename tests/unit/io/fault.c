// Stands in front of the clock and of the allocator, by the linker's --wrap.
#include "tests/unit/io/fault.h"

#include <stddef.h>

#include "daemon/base/clock.h"

int64_t __real_clock_now_ms(void);
int64_t __wrap_clock_now_ms(void);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

static int64_t clock_offset_ms;
static int64_t jump_ms;
static int jump_at;
static int reads_count;
static int fail_at;
static bool fail_forever;
static bool has_failed;

void fault_clock_jump(int64_t ms)
{
    clock_offset_ms += ms;
}

void fault_clock_jump_at(int reads, int64_t ms)
{
    jump_at = reads;
    jump_ms = ms;
}

int fault_clock_reads(void)
{
    return reads_count;
}

int64_t __wrap_clock_now_ms(void)
{
    reads_count++;
    if (jump_at > 0 && --jump_at == 0)
        clock_offset_ms += jump_ms;
    return __real_clock_now_ms() + clock_offset_ms;
}

void fault_memory_fail(int count, bool forever)
{
    fail_at = count;
    fail_forever = forever;
    has_failed = false;
}

bool fault_memory_has_failed(void)
{
    return has_failed;
}

static bool fails(void)
{
    if (fail_at == 0 || --fail_at > 0)
        return false;
    if (fail_forever)
        fail_at = 1;
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}
