// Effects point at texts inside the broker's objects until the next step, so an object that ends
// within a step is buried first and freed when the next step begins.
#ifndef LB_CORE_GRAVE_H
#define LB_CORE_GRAVE_H

#include <bsd/sys/queue.h>

// The first member of every object that may be buried: its address is the allocation's.
struct grave {
    SLIST_ENTRY(grave) link;
};

SLIST_HEAD(graveyard, grave);

void graveyard_bury(struct graveyard *yard, struct grave *grave);
void graveyard_clear(struct graveyard *yard);

#endif
