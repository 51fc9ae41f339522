// A fault shim: loaded in front of the daemon's libraries by LD_PRELOAD, it fails, slows down or
// counts what the daemon asks of the C library, as told by a small file that a test has mapped too,
// so that a fault can begin and end at any moment of the daemon's life.
//
// Preloading, and not the linker's --wrap, because allocations of libuv, hiredis and the C library
// count as well, and because it is the very daemon that is shipped which is under test. It is built
// without sanitizers, as it also stands in front of the sanitizer's own allocator: that one is
// found by RTLD_NEXT like any other, once ASAN_OPTIONS has verify_asan_link_order=0, so leaks and
// bad accesses are seen as ever.
//
// It may not allocate while a request for memory is under way, nor change errno but to fail.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define FRAMES_MAX       16
#define SITES_MAX        4096
#define MODULES_MAX      32
#define PATH_BYTES       96
#define RESOLVE_TO_BYTES 128
#define EARLY_BYTES      65536

#define STACK_MAX 64

// A site is told from others by so many of the program's frames, and those of libraries above them:
// with more of them the same line of code would be many sites, some of them reached once a day.
#define PROGRAM_FRAMES 2

#define OFFSET_BITS 40
#define PROGRAM     1 // its number as a module

enum alloc_mode {
    ALLOC_OFF,
    ALLOC_COUNT,  // fail none
    ALLOC_NUMBER, // fail the one whose number `alloc_at` is, and with `alloc_forever` all after it
    ALLOC_SITE,   // fail the next one at the site `alloc_at`
};

// The end of a stack of calls that asked for memory. fault_shim.py reads these, and the plan, by
// their offsets.
struct site {
    uint64_t hash; // of the stack, the same in every process; 0: unused
    int64_t seen;
    int64_t failed;
    uint64_t frames[FRAMES_MAX]; // number of the module, and the offset in it
};

struct plan {
    _Atomic int64_t alloc_mode;
    _Atomic uint64_t alloc_at;
    _Atomic int64_t alloc_forever;
    _Atomic int64_t alloc_count;
    _Atomic int64_t alloc_failed;
    _Atomic uint64_t alloc_site; // of the last that failed
    _Atomic int64_t write_fd;
    _Atomic int64_t write_errno; // 0: writes succeed
    _Atomic int64_t write_failed;
    _Atomic int64_t fd_errno; // of whatever makes a descriptor; 0: it succeeds
    _Atomic int64_t fd_failed;
    _Atomic int64_t resolve_ms;
    _Atomic int64_t resolve_error; // a code of getaddrinfo's
    _Atomic int64_t resolve_count;
    _Atomic int64_t stall_ms; // how much later than it could the next wait for events returns
    _Atomic int64_t lock;
    char resolve_to[RESOLVE_TO_BYTES]; // the address that every name has, if any
    char modules[MODULES_MAX][PATH_BYTES];
    struct site sites[SITES_MAX];
};

enum module_kind {
    MODULE_OTHER,
    MODULE_RUNTIME, // the C library, the loader, the sanitizers
    MODULE_SHIM,
};

struct module {
    enum module_kind kind;
    uintptr_t begin;
    uintptr_t end;
    uintptr_t base;
};

static struct plan *plan;
static struct module modules[MODULES_MAX];
static int modules_count;
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_inside;

// Memory for whoever asks before the real functions are known. It is never given back.
static _Alignas(max_align_t) char early[EARLY_BYTES];
static size_t early_used;

static void *(*real_malloc)(size_t size);
static void *(*real_calloc)(size_t count, size_t size);
static void *(*real_realloc)(void *old, size_t size);
static void (*real_free)(void *memory);
static bool is_resolving;

static void real_find(void *ret_function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        abort();
    memcpy(ret_function, &found, sizeof(found));
}

static bool allocator_is_known(void)
{
    if (real_free)
        return true;
    if (is_resolving)
        return false;
    is_resolving = true;
    real_find(&real_malloc, "malloc");
    real_find(&real_calloc, "calloc");
    real_find(&real_realloc, "realloc");
    real_find(&real_free, "free");
    is_resolving = false;
    return true;
}

static void *early_take(size_t size)
{
    size_t rounded = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    void *taken = early + early_used;

    if (rounded > sizeof(early) - early_used)
        abort();
    early_used += rounded;
    return taken;
}

static bool is_early(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)early < sizeof(early);
}

static void plan_lock(void)
{
    int64_t open = 0;

    while (!atomic_compare_exchange_weak(&plan->lock, &open, 1))
        open = 0;
}

static void plan_unlock(void)
{
    atomic_store(&plan->lock, 0);
}

static int on_module(struct dl_phdr_info *info, size_t size, void *context)
{
    static const char *const runtime[] = {"/libc.so", "/ld-linux", "/libasan.", "/libubsan."};
    struct module module = {.begin = UINTPTR_MAX, .base = info->dlpi_addr};

    (void)size;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        if (begin < module.begin)
            module.begin = begin;
        if (begin + info->dlpi_phdr[i].p_memsz > module.end)
            module.end = begin + info->dlpi_phdr[i].p_memsz;
    }
    if (modules_count == MODULES_MAX)
        return 1;
    for (size_t i = 0; i < sizeof(runtime) / sizeof(runtime[0]); i++) {
        if (strstr(info->dlpi_name, runtime[i]))
            module.kind = MODULE_RUNTIME;
    }
    if ((uintptr_t)on_module >= module.begin && (uintptr_t)on_module < module.end)
        module.kind = MODULE_SHIM;
    (void)strncpy(plan->modules[modules_count], info->dlpi_name, PATH_BYTES - 1);
    modules[modules_count++] = module;
    return 0;
}

static uint64_t frame_find(uintptr_t address)
{
    for (int i = 0; i < modules_count; i++) {
        if (address >= modules[i].begin && address < modules[i].end)
            return (uint64_t)(i + 1) << OFFSET_BITS | (address - modules[i].base);
    }
    return 0;
}

// Loaded later, as the modules of the name service are: look at all of them again.
static uint64_t frame_find_again(uintptr_t address)
{
    modules_count = 0;
    (void)dl_iterate_phdr(on_module, NULL);
    return frame_find(address);
}

// Reads the caller's site. False when only the sanitizer or the C library asks, for itself.
static bool site_read(struct site *ret_site)
{
    void *stack[STACK_MAX];
    int depth = backtrace(stack, STACK_MAX);
    bool has_asker = false;
    size_t count = 0;
    int in_program = 0;

    *ret_site = (struct site){.hash = 14695981039346656037u};
    for (int i = 0; i < depth && in_program < PROGRAM_FRAMES; i++) {
        uint64_t frame = frame_find((uintptr_t)stack[i]);

        if (!frame)
            frame = frame_find_again((uintptr_t)stack[i]);
        if (!frame || modules[(frame >> OFFSET_BITS) - 1].kind == MODULE_SHIM)
            continue;
        in_program += frame >> OFFSET_BITS == PROGRAM;
        has_asker |= modules[(frame >> OFFSET_BITS) - 1].kind == MODULE_OTHER;
        if (count < FRAMES_MAX)
            ret_site->frames[count++] = frame;
        ret_site->hash = (ret_site->hash ^ frame) * 1099511628211u;
    }
    ret_site->hash = ret_site->hash >> 1 | 1; // no 0, and fits a signed number
    return has_asker;
}

static struct site *site_keep(const struct site *site)
{
    for (size_t i = 0; i < SITES_MAX; i++) {
        struct site *known = &plan->sites[(site->hash + i) % SITES_MAX];

        if (known->hash == site->hash)
            return known;
        if (!known->hash) {
            *known = *site;
            return known;
        }
    }
    abort();
}

// What is only asked for because something failed before is no site of the scenario's.
static bool plan_fails(enum alloc_mode mode)
{
    bool has_failed = atomic_load(&plan->alloc_failed) > 0;
    uint64_t at = atomic_load(&plan->alloc_at);
    struct site *known;
    struct site site;
    bool fails;

    if (has_failed)
        return mode == ALLOC_NUMBER && atomic_load(&plan->alloc_forever);
    if (!site_read(&site))
        return false;
    known = site_keep(&site);
    known->seen++;
    fails = mode == ALLOC_SITE && site.hash == at;
    if (atomic_fetch_add(&plan->alloc_count, 1) + 1 == (int64_t)at)
        fails |= mode == ALLOC_NUMBER;
    known->failed += fails;
    if (fails)
        atomic_store(&plan->alloc_site, site.hash);
    return fails;
}

static bool alloc_fails(void)
{
    enum alloc_mode mode = plan && !is_inside ? (enum alloc_mode)atomic_load(&plan->alloc_mode) : 0;
    int saved_errno = errno;
    bool fails;

    if (mode == ALLOC_OFF)
        return false;
    is_inside = true;
    plan_lock();
    fails = plan_fails(mode);
    atomic_fetch_add(&plan->alloc_failed, fails);
    plan_unlock();
    is_inside = false;
    errno = fails ? ENOMEM : saved_errno;
    return fails;
}

EXPORT void *malloc(size_t size)
{
    if (!allocator_is_known())
        return early_take(size);
    return alloc_fails() ? NULL : real_malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    if (!allocator_is_known())
        return early_take(count * size);
    return alloc_fails() ? NULL : real_calloc(count, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    if (!allocator_is_known() || is_early(old))
        abort();
    return alloc_fails() ? NULL : real_realloc(old, size);
}

EXPORT void free(void *memory)
{
    if (memory && !is_early(memory) && allocator_is_known())
        real_free(memory);
}

// The sanitizer's own copies of these two would not pass by malloc().
EXPORT char *strndup(const char *text, size_t most)
{
    size_t length = strnlen(text, most);
    char *copy = alloc_fails() ? NULL : real_malloc(length + 1);

    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

EXPORT char *strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = alloc_fails() ? NULL : real_malloc(size);

    return copy ? memcpy(copy, text, size) : NULL;
}

static void pause_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

static bool write_fails(int fd)
{
    int64_t error = plan ? atomic_load(&plan->write_errno) : 0;

    if (!error || fd != atomic_load(&plan->write_fd))
        return false;
    atomic_fetch_add(&plan->write_failed, 1);
    errno = (int)error;
    return true;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t length)
{
    static ssize_t (*real_write)(int, const void *, size_t);

    if (!real_write)
        real_find(&real_write, "write");
    return write_fails(fd) ? -1 : real_write(fd, bytes, length);
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    static ssize_t (*real_writev)(int, const struct iovec *, int);

    if (!real_writev)
        real_find(&real_writev, "writev");
    return write_fails(fd) ? -1 : real_writev(fd, parts, count);
}

static bool descriptor_fails(void)
{
    int64_t error = plan ? atomic_load(&plan->fd_errno) : 0;

    if (!error)
        return false;
    atomic_fetch_add(&plan->fd_failed, 1);
    errno = (int)error;
    return true;
}

EXPORT int accept4(int fd, __SOCKADDR_ARG address, socklen_t *length, int flags)
{
    static int (*real_accept4)(int, __SOCKADDR_ARG, socklen_t *, int);

    int accepted;

    if (!real_accept4)
        real_find(&real_accept4, "accept4");
    if (descriptor_fails())
        return -1;
    accepted = real_accept4(fd, address, length, flags);
    if (plan && accepted < 0 && errno == EMFILE)
        atomic_fetch_add(&plan->fd_failed, 1);
    return accepted;
}

EXPORT int socket(int domain, int type, int protocol)
{
    static int (*real_socket)(int, int, int);

    if (!real_socket)
        real_find(&real_socket, "socket");
    return descriptor_fails() ? -1 : real_socket(domain, type, protocol);
}

// The mode is there only where the flags ask for it, but reading it anyway does no harm.
EXPORT int open(const char *path, int flags, ...)
{
    static int (*real_open)(const char *, int, ...);
    __builtin_va_list args;
    mode_t mode;

    __builtin_va_start(args, flags);
    mode = __builtin_va_arg(args, mode_t);
    __builtin_va_end(args);
    if (!real_open)
        real_find(&real_open, "open");
    return descriptor_fails() ? -1 : real_open(path, flags, mode);
}

EXPORT int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_list)
{
    static int (*real_getaddrinfo)(const char *, const char *, const struct addrinfo *,
                                   struct addrinfo **);

    if (!real_getaddrinfo)
        real_find(&real_getaddrinfo, "getaddrinfo");
    if (plan) {
        atomic_fetch_add(&plan->resolve_count, 1);
        pause_ms(atomic_load(&plan->resolve_ms));
        if (atomic_load(&plan->resolve_error))
            return (int)atomic_load(&plan->resolve_error);
        if (plan->resolve_to[0])
            host = plan->resolve_to;
    }
    return real_getaddrinfo(host, service, hints, ret_list);
}

static void stall(void)
{
    int saved_errno = errno;

    if (plan)
        pause_ms(atomic_exchange(&plan->stall_ms, 0));
    errno = saved_errno;
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms,
                       const sigset_t *mask)
{
    static int (*real_wait)(int, struct epoll_event *, int, int, const sigset_t *);
    int count;

    if (!real_wait)
        real_find(&real_wait, "epoll_pwait");
    count = real_wait(fd, events, most, timeout_ms, mask);
    stall();
    return count;
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    static int (*real_wait)(int, struct epoll_event *, int, int);
    int count;

    if (!real_wait)
        real_find(&real_wait, "epoll_wait");
    count = real_wait(fd, events, most, timeout_ms);
    stall();
    return count;
}

static __attribute__((constructor)) void shim_begin(void)
{
    const char *path = getenv("FAULT_PLAN");
    void *stack[1];
    void *mapped;
    int fd;

    is_inside = true;
    (void)allocator_is_known();
    (void)backtrace(stack, 1); // the first time it loads a library
    fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        mapped = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        (void)close(fd);
        if (mapped == MAP_FAILED)
            abort();
        plan = mapped;
        (void)dl_iterate_phdr(on_module, NULL);
    }
    is_inside = false;
}
