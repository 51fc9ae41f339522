// Makes allocations fail on purpose. The binary is linked with --wrap for malloc and calloc, which
// check's own assertions use, too: where calls are counted, assert after alloc_restore().
#ifndef LB_TESTS_PROTO_ALLOC_H
#define LB_TESTS_PROTO_ALLOC_H

// Lets the allocation after `count` good ones fail, and those after it succeed again.
void alloc_fail_after(long count);

// Lets all succeed again. Returns how many there were since alloc_fail_after().
long alloc_restore(void);

#endif
