// Red-black trees whose functions are private to one file, and may be unused there.
#ifndef LB_CORE_TREE_H
#define LB_CORE_TREE_H

#include <bsd/sys/tree.h>

#define LB_TREE_GENERATE(name, type, field, compare)                                               \
    RB_GENERATE_INTERNAL(name, type, field, compare, __attribute__((__unused__)) static)

#endif
