// Making the loop. What libuv would end the process for when there is no memory, or no thread, is
// taken here before the daemon serves.
#ifndef LB_IO_LOOP_H
#define LB_IO_LOOP_H

#include <uv.h>

#include "proto/macros.h"

// To be called once, before anything else of libuv. Returns 0 or a negative errno.
int loop_init(uv_loop_t *loop) LB_MUST_CHECK;

// Starts the threads that look names up. Returns 0, or a negative errno when there are none to be
// had.
int loop_start_threads(uv_loop_t *loop) LB_MUST_CHECK;

#endif
