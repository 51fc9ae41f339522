// Deferred freeing: a list of allocations that end with the step. It needs no memory of its own.
#include "daemon/core/grave.h"

#include <stdlib.h>

void graveyard_bury(struct graveyard *yard, struct grave *grave)
{
    SLIST_INSERT_HEAD(yard, grave, link);
}

void graveyard_clear(struct graveyard *yard)
{
    while (!SLIST_EMPTY(yard)) {
        struct grave *grave = SLIST_FIRST(yard);

        SLIST_REMOVE_HEAD(yard, link);
        free(grave);
    }
}
