// Calls of the kernel and of libuv that fail on demand.
#ifndef LB_TESTS_UNIT_IO_FAULT_CALL_H
#define LB_TESTS_UNIT_IO_FAULT_CALL_H

// The `first`-th `call` from now, one of those listed in fault_call.c, fails with the errno
// `error`, and so do the next ones, `times` in all. One fault at a time; 0 times: none.
void fault_call_fail(const char *call, int error, int first, int times);

// How often that is still to happen.
int fault_call_left(void);

// Right before the next time that `call` is made, `before` runs, once.
void fault_call_before(const char *call, void (*before)(void));

// What the kernel says that this host is called.
void fault_call_host(const char *name);

#endif
