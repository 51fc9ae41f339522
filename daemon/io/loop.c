// libuv calls abort() where it cannot go on. Two such places depend on memory and are made safe
// here: the table of watched descriptors, which grows whenever there are more of them than ever
// before, and the threads that look names up, which begin with the first name.
#include "daemon/io/loop.h"

#include <stdbool.h>
#include <stdlib.h>

// More than the option connections_max allows, with all that is not a client: 1 MiB, of which the
// kernel provides as much as is used.
#define TABLE_DESCRIPTORS 131072

// As many as libuv starts.
#define THREADS 4

#define THREAD_STACK_BYTES ((size_t)8 << 20)

static void *table[TABLE_DESCRIPTORS];
static bool is_table_taken;

// The table is the only thing that libuv ever makes larger.
static void *loop_realloc(void *old, size_t size)
{
    if (size <= sizeof(table) && (old == table || (!old && !is_table_taken))) {
        is_table_taken = true;
        return table;
    }
    return old == table ? NULL : realloc(old, size);
}

static void loop_free(void *memory)
{
    if (memory == table)
        is_table_taken = false;
    else
        free(memory);
}

int loop_init(uv_loop_t *loop)
{
    int r = uv_replace_allocator(malloc, loop_realloc, calloc, loop_free);

    return r < 0 ? r : uv_loop_init(loop);
}

static void on_try(void *context)
{
    uv_sem_wait(context);
}

// Whether so many threads can be had at a time. The C library keeps the stacks of threads that have
// ended, so that whoever asks next gets those.
static int threads_try(void)
{
    const uv_thread_options_t options = {UV_THREAD_HAS_STACK_SIZE, THREAD_STACK_BYTES};
    uv_thread_t threads[THREADS];
    uv_sem_t gate;
    int started = 0;
    int r = uv_sem_init(&gate, 0);

    if (r < 0)
        return r;
    while (started < THREADS && r == 0) {
        r = uv_thread_create_ex(&threads[started], &options, on_try, &gate);
        started += r == 0;
    }
    for (int i = 0; i < started; i++)
        uv_sem_post(&gate);
    for (int i = 0; i < started; i++)
        (void)uv_thread_join(&threads[i]);
    uv_sem_destroy(&gate);
    return r;
}

static void on_work(uv_work_t *work)
{
    (void)work;
}

static void on_worked(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

int loop_start_threads(uv_loop_t *loop)
{
    static uv_work_t work;
    int r = threads_try();

    return r < 0 ? r : uv_queue_work(loop, &work, on_work, on_worked);
}
