// The shape `processes`: each contender is a process with calls that wait. All connect first, then
// they begin at the same moment. Whoever waits at the deadline is ended by a timer's signal, for
// most calls that wait know no way out; it writes its records in the handler.
#include "tests/bench/bench_load.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// How long all may take to connect, and to end after the deadline.
#define PATIENCE_MS 60000

const char error_lost[] = "lost";

// Shared by all processes.
struct shared {
    int64_t start_ns; // set before the start is told
    struct child {
        bool is_done;
        struct summary summary;
    } children[];
};

struct contender {
    const struct bench *bench;
    const struct blocking_peer *peer;
    void *user;
    struct child *child;
    struct span span;
    struct tally tally;
    int number;
    int records_fd;
};

// There is one contender in a process.
static struct contender self;
static volatile sig_atomic_t is_waiting;

// Does only what a signal handler may, and is not interrupted by another call of itself.
static _Noreturn void contender_end(void)
{
    bool ok;

    is_waiting = 0;
    ok = records_write(&self.tally, self.records_fd);
    self.child->summary = self.tally.summary;
    self.child->is_done = ok;
    _exit(ok ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void on_deadline(int number)
{
    (void)number;
    if (is_waiting)
        contender_end();
}

static void set_deadline(int64_t deadline_ns)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    const struct itimerspec when = {.it_value = {.tv_sec = deadline_ns / 1000000000,
                                                 .tv_nsec = (long)(deadline_ns % 1000000000)}};
    const struct sigaction action = {.sa_handler = on_deadline, .sa_flags = SA_RESTART};
    timer_t timer;

    if (sigaction(SIGALRM, &action, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, TIMER_ABSTIME, &when, NULL) != 0)
        die("the timer");
}

static bool cycle_acquire(struct record *record)
{
    const char *error;

    record->asked_ns = clock_ns();

    // First the mark, then the look at the clock: a deadline in between is seen by one of them.
    is_waiting = 1;
    if (clock_ns() >= self.span.ended_ns)
        contender_end();
    error = self.peer->acquire(self.user);
    record->granted_ns = clock_ns();
    is_waiting = 0;
    if (error) {
        tally_error(&self.tally, error);
        sleep_until(clock_ns() + PAUSE_NS);
    }
    return !error;
}

static void cycle_release(struct record *record)
{
    const char *error;

    record->releasing_ns = clock_ns();
    error = self.peer->release(self.user);
    record->released_ns = clock_ns();
    if (error == error_lost)
        self.tally.summary.lost++;
    else if (error)
        tally_error(&self.tally, error);
    tally_add(&self.tally, &self.span, record);
}

static _Noreturn void contender_run(void)
{
    const struct bench *bench = self.bench;
    struct record record = {.contender = self.number};

    for (;;) {
        if (!cycle_acquire(&record))
            continue;
        if (bench->hold_ns > 0)
            sleep_until(record.granted_ns + bench->hold_ns);
        cycle_release(&record);
        if (bench->think_ns > 0)
            sleep_until(record.released_ns + bench->think_ns);
    }
}

static _Noreturn void child_main(const struct shared *shared, int ready_fd, int go_fd)
{
    char byte = 1;

    // Whoever starts this program may end it at any time.
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    self.user = self.peer->open(self.bench, self.number);
    if (write(ready_fd, &byte, 1) != 1)
        die("the pipe of those who are ready");
    if (read(go_fd, &byte, 1) != 0 || shared->start_ns == 0)
        die_of("the start", "it was called off");
    self.span = span_from(self.bench, shared->start_ns);
    set_deadline(self.span.ended_ns);
    sleep_until(self.span.start_ns);
    contender_run();
}

static void kill_all(const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        (void)kill(pids[i], SIGKILL);
}

// It stays a zombie, so that its id is nobody else's when all are killed.
static bool has_one_ended(void)
{
    siginfo_t info = {0};

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

// One byte for each that is connected. Nothing comes from one that failed: it has told why.
static bool all_get_ready(int fd, int count)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;

    for (int i = 0; i < count; i++) {
        do {
            if (has_one_ended())
                return false;
        } while (poll(&ready, 1, 100) == 0);
        if (read(fd, &byte, 1) != 1)
            return false;
    }
    return true;
}

static void wait_for_all(const pid_t *pids, int count, int64_t until_ns)
{
    for (int i = 0; i < count; i++) {
        int status;

        while (waitpid(pids[i], &status, WNOHANG) == 0) {
            if (clock_ns() > until_ns) {
                kill_all(pids + i, count - i);
                die_of("a contender", "it does not end");
            }
            sleep_until(clock_ns() + 1000000);
        }
    }
}

static pid_t child_start(struct shared *shared, int number, const int *ready, const int *go)
{
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid > 0)
        return pid;
    self.number = number;
    self.child = &shared->children[number];
    (void)close(go[1]);
    child_main(shared, ready[1], go[0]);
}

static struct shared *shared_new(int count)
{
    struct shared *shared = mmap(NULL, sizeof(*shared) + (size_t)count * sizeof(struct child),
                                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        die("shared memory");
    return shared;
}

static void report(const struct bench *bench, const struct shared *shared)
{
    const struct span span = span_from(bench, shared->start_ns);
    struct summary summary = {0};

    for (int i = 0; i < bench->contenders; i++) {
        if (!shared->children[i].is_done)
            die_of("a contender", "it failed, or its records could not be written");
        summary_merge(&summary, &shared->children[i].summary);
    }
    summary_print(bench, &span, &summary);
}

void run_processes(const struct bench *bench, const struct blocking_peer *peer)
{
    struct shared *shared = shared_new(bench->contenders);
    pid_t *pids = memory(NULL, (size_t)bench->contenders * sizeof(*pids));
    int ready[2];
    int go[2];

    if (pipe(ready) != 0 || pipe(go) != 0)
        die("a pipe");
    self.bench = bench;
    self.peer = peer;
    self.records_fd = records_open(bench);
    for (int i = 0; i < bench->contenders; i++)
        pids[i] = child_start(shared, i, ready, go);
    if (!all_get_ready(ready[0], bench->contenders)) {
        kill_all(pids, bench->contenders);
        die_of("a contender", "it failed at the start");
    }
    shared->start_ns = clock_ns() + 20000000;
    (void)close(go[1]);
    sleep_until(span_from(bench, shared->start_ns).ended_ns);
    wait_for_all(pids, bench->contenders,
                 clock_ns() + bench->hold_ns + (int64_t)PATIENCE_MS * 1000000);
    free(pids);
    report(bench, shared);
}
