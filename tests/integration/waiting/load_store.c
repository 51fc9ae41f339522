// The store that the lock guards: a counter in a file that any number of processes share, also the
// tests in Python (store.py has the same layout). It refuses fences that are too old and counts
// what must not happen under a lock. It takes no lock but the file's own, for the moment of one
// access.
#include "tests/integration/waiting/load.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

struct store {
    int64_t inside;       // who is in the critical section; 0: nobody
    int64_t fence;        // the highest that came in
    int64_t value;        // the counter
    int64_t entries;      // into the critical section
    int64_t overlaps;     // came in, or left, while another was inside
    int64_t regressions;  // came in with a fence that was no higher than all before
    int64_t refused;      // wrote with a fence that was too old
    int64_t lost_updates; // wrote what was made from a value that had changed since
};

static int store_fd = -1;
static struct store *shared;

void store_open(const char *path)
{
    store_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store_fd < 0 || ftruncate(store_fd, (off_t)sizeof(*shared)) != 0)
        die("the store's file");
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, store_fd, 0);
    if (shared == MAP_FAILED)
        die("the store's memory");
}

int64_t store_enter(int64_t who, int64_t fence)
{
    int64_t base;

    if (!shared)
        return 0;
    if (flock(store_fd, LOCK_EX) != 0)
        die("flock");
    shared->entries++;
    shared->overlaps += shared->inside != 0;
    shared->inside = who;
    if (fence > shared->fence)
        shared->fence = fence;
    else
        shared->regressions++;
    base = shared->value;
    if (flock(store_fd, LOCK_UN) != 0)
        die("flock");
    return base;
}

void store_leave(int64_t who, int64_t fence, int64_t base)
{
    if (!shared)
        return;
    if (flock(store_fd, LOCK_EX) != 0)
        die("flock");
    if (fence < shared->fence) {
        shared->refused++;
    } else {
        shared->lost_updates += shared->value != base;
        shared->value = base + 1;
    }
    if (shared->inside == who)
        shared->inside = 0;
    else
        shared->overlaps++;
    if (flock(store_fd, LOCK_UN) != 0)
        die("flock");
}
