// Many contenders for a lock, in one thread: each goes round acquire (waiting), hold, release, and
// under the lock it reads and writes the store. What they saw is printed as JSON at the end.
//
//     waiting_load [OPTIONS] KEY SOCKET...
//
//     --connections N  to each socket (8)     --owners N   contenders on each connection (1)
//     --rounds N       of each contender      --ms N       how long to go on
//     --hold-us N      time in the section    --ttl N      ms (3000)
//     --wait N         ms (-1)                --keys N     KEY-0, KEY-1, ... in turn (one: KEY)
//     --no-renew       --store FILE           --records    print each grant
//
// It ends when all rounds are done, when the time is over, or with SIGTERM; whoever holds or waits
// then is cut short by the end of the connection, once nobody is in the store.
//
// A contender that is granted goes into the store at once and out of it no sooner than all other
// lines that have come are looked at: two at a time would be seen, also within this process.
#include "tests/integration/waiting/load.h"

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A contender whose acquire failed asks again after that.
#define PAUSE_US 20000

static volatile sig_atomic_t told_to_end;

static void on_signal(int number)
{
    (void)number;
    told_to_end = 1;
}

int64_t clock_us(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        die("the clock");
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void *memory(void *old, size_t size)
{
    void *fresh = realloc(old, size);

    if (!fresh)
        die("memory");
    return fresh;
}

void die(const char *what)
{
    (void)fprintf(stderr, "waiting_load: ");
    perror(what);
    exit(1);
}

static void key_name(const struct load *load, const struct contender *contender, char *name,
                     size_t size)
{
    if (load->keys > 1)
        (void)snprintf(name, size, "%s-%d", load->key, contender->number % load->keys);
    else
        (void)snprintf(name, size, "%s", load->key);
}

static void send_line(struct load *load, struct contender *contender, const char *op, int id,
                      const char *more)
{
    char name[300];
    char line[600];

    key_name(load, contender, name, sizeof(name));

    int length = snprintf(line, sizeof(line),
                          "{\"id\":%d,\"op\":\"%s\",\"key\":\"%s\",\"owner\":\"o%d\"%s}\n", id, op,
                          name, contender->number, more);

    if (length < 0 || (size_t)length >= sizeof(line))
        die("the length of the key");
    link_send(contender->link, line, (size_t)length);
}

static void contender_ask(struct load *load, struct contender *contender, int64_t now_us)
{
    char more[120];

    (void)snprintf(more, sizeof(more), ",\"ttl_ms\":%" PRId64 ",\"wait_ms\":%" PRId64 "%s",
                   load->ttl_ms, load->wait_ms, load->no_renew ? ",\"renew\":false" : "");
    send_line(load, contender, "acquire", 2 * contender->number + 1, more);
    contender->state = CONTENDER_WAITING;
    contender->arrival = ++contender->link->arrivals;
    contender->sent_us = now_us;
    contender->was_lost = false;
}

// Waiters of the same link and key that came before this one.
static int contender_passes(const struct load *load, const struct contender *contender)
{
    int count = 0;

    for (int i = 0; i < load->contenders_count; i++) {
        const struct contender *other = &load->contenders[i];

        count += other->link == contender->link && other->state == CONTENDER_WAITING &&
                 other->number % load->keys == contender->number % load->keys &&
                 other->arrival < contender->arrival;
    }
    return count;
}

// Its name in the store, among all processes.
static int64_t who(const struct contender *contender)
{
    return ((int64_t)getpid() << 20) + contender->number;
}

static void contender_enter(struct load *load, struct contender *contender, const char *line)
{
    contender->granted_us = clock_us();
    contender->fence = line_number(line, "fence", -1);
    contender->base = store_enter(who(contender), contender->fence);
    contender->is_inside = true;
    contender->state = CONTENDER_HOLDING;
    contender->due_us = contender->granted_us + load->hold_us;
    contender->grants++;

    if (load->records_count == load->records_room) {
        load->records_room = 2 * load->records_room + 1000;
        load->records = memory(load->records, load->records_room * sizeof(*load->records));
    }
    load->records[load->records_count++] = (struct record){
        .fence = contender->fence,
        .sent_us = contender->sent_us,
        .granted_us = contender->granted_us,
        .valid_ms = line_number(line, "valid_ms", -1),
        .broker = contender->link->broker,
        .contender = contender->number,
        .passed = contender_passes(load, contender),
    };
}

static void contender_leave(struct contender *contender)
{
    if (contender->is_inside)
        store_leave(who(contender), contender->fence, contender->base);
    contender->is_inside = false;
}

static void contender_rest(const struct load *load, struct contender *contender, int64_t until_us)
{
    bool is_done = load->rounds > 0 && contender->grants >= load->rounds;

    contender->state = is_done ? CONTENDER_DONE : CONTENDER_IDLE;
    contender->due_us = until_us;
}

static void count_error(struct load *load, const char *line)
{
    char name[sizeof(load->errors[0].name)] = "?";
    const size_t last = sizeof(load->errors) / sizeof(load->errors[0]) - 1;
    size_t i = 0;

    (void)line_text(line, "error", name, sizeof(name));
    while (i < last && load->errors[i].count > 0 && strcmp(load->errors[i].name, name) != 0)
        i++;
    strcpy(load->errors[i].name, name);
    load->errors[i].count++;
}

static struct contender *find_by_fence(struct load *load, int64_t fence)
{
    for (int i = 0; i < load->contenders_count; i++)
        if (load->contenders[i].fence == fence)
            return &load->contenders[i];
    return NULL;
}

static void take_event(struct load *load, const char *line)
{
    struct contender *contender = find_by_fence(load, line_number(line, "fence", -1));

    if (!strstr(line, "\"event\":\"lost\"") || !contender)
        return;
    load->lost++;
    contender->was_lost = true;
    contender_leave(contender);
}

static void take_line(void *context, char *line)
{
    struct load *load = context;
    int64_t id = line_number(line, "id", -1);
    bool ok = strstr(line, "\"ok\":true") != NULL;

    if (id < 0) {
        take_event(load, line);
        return;
    }

    struct contender *contender = &load->contenders[(id - 1) / 2];

    if (id % 2 == 0) {
        contender_rest(load, contender, 0);
    } else if (ok) {
        contender_enter(load, contender, line);
    } else {
        count_error(load, line);
        contender_rest(load, contender, clock_us() + PAUSE_US);
    }
}

// What each is due to do now. Returns when the next one is.
static int64_t attend_all(struct load *load, int64_t now_us, bool is_ending)
{
    int64_t next_us = INT64_MAX;

    for (int i = 0; i < load->contenders_count; i++) {
        struct contender *contender = &load->contenders[i];

        if (contender->state != CONTENDER_HOLDING && contender->state != CONTENDER_IDLE)
            continue;
        if (is_ending || contender->due_us > now_us) {
            if (is_ending)
                contender_leave(contender);
            if (contender->due_us < next_us)
                next_us = contender->due_us;
        } else if (contender->state == CONTENDER_IDLE) {
            contender_ask(load, contender, now_us);
        } else {
            contender_leave(contender);
            send_line(load, contender, "release", 2 * contender->number + 2, "");
            contender->state = CONTENDER_RELEASING;
        }
    }
    return next_us;
}

static bool all_are_done(const struct load *load)
{
    for (int i = 0; i < load->contenders_count; i++)
        if (load->contenders[i].state != CONTENDER_DONE)
            return false;
    return true;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void wait_for_lines(struct load *load, struct pollfd *polls, int64_t until_us)
{
    int64_t left_us = until_us - clock_us();
    struct timespec timeout = {.tv_sec = 1};

    if (left_us < 0)
        left_us = 0;
    if (left_us < 1000000)
        timeout = (struct timespec){.tv_nsec = (long)left_us * 1000};
    for (int i = 0; i < load->links_count; i++) {
        link_flush(&load->links[i]);
        polls[i].fd = load->links[i].fd;
        polls[i].events = (short)(POLLIN | (load->links[i].out_used > 0 ? POLLOUT : 0));
    }
    if (ppoll(polls, (nfds_t)load->links_count, &timeout, NULL) <= 0)
        return;
    for (int i = 0; i < load->links_count; i++)
        if (polls[i].revents)
            link_read(&load->links[i], take_line, load);
}

static void run(struct load *load)
{
    struct pollfd *polls = memory(NULL, (size_t)load->links_count * sizeof(*polls));
    int64_t end_us = INT64_MAX;

    load->began_us = clock_us();
    if (load->run_ms > 0)
        end_us = load->began_us + load->run_ms * 1000;
    for (;;) {
        int64_t now_us = clock_us();
        bool is_ending = told_to_end || now_us >= end_us;
        int64_t next_us = attend_all(load, now_us, is_ending);

        if (is_ending || all_are_done(load))
            break;
        wait_for_lines(load, polls, least(next_us, end_us));
    }
    load->ended_us = clock_us();
    free(polls);
}

static void parse_options(struct load *load, int argc, char **argv)
{
    static const struct option known[] = {
        {"connections", required_argument, NULL, 'c'}, {"owners", required_argument, NULL, 'o'},
        {"rounds", required_argument, NULL, 'r'},      {"ms", required_argument, NULL, 'm'},
        {"hold-us", required_argument, NULL, 'h'},     {"ttl", required_argument, NULL, 't'},
        {"wait", required_argument, NULL, 'w'},        {"keys", required_argument, NULL, 'k'},
        {"store", required_argument, NULL, 's'},       {"no-renew", no_argument, NULL, 'n'},
        {"records", no_argument, NULL, 'R'},           {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        long long number = optarg ? atoll(optarg) : 0;

        switch (option) {
        case 'c':
            load->connections = (int)number;
            break;
        case 'o':
            load->owners = (int)number;
            break;
        case 'r':
            load->rounds = number;
            break;
        case 'm':
            load->run_ms = number;
            break;
        case 'h':
            load->hold_us = number;
            break;
        case 't':
            load->ttl_ms = number;
            break;
        case 'w':
            load->wait_ms = number;
            break;
        case 'k':
            load->keys = (int)number;
            break;
        case 's':
            load->store_path = optarg;
            break;
        case 'n':
            load->no_renew = true;
            break;
        case 'R':
            load->shows_records = true;
            break;
        default:
            exit(2);
        }
    }
    if (argc - optind < 2 || load->connections < 1 || load->owners < 1 || load->keys < 1)
        exit(2);
}

static void connect_all(struct load *load, char **paths, int count)
{
    load->links_count = count * load->connections;
    load->links = memory(NULL, (size_t)load->links_count * sizeof(*load->links));
    memset(load->links, 0, (size_t)load->links_count * sizeof(*load->links));
    load->contenders_count = load->links_count * load->owners;
    load->contenders = memory(NULL, (size_t)load->contenders_count * sizeof(*load->contenders));
    memset(load->contenders, 0, (size_t)load->contenders_count * sizeof(*load->contenders));
    for (int i = 0; i < load->links_count; i++)
        link_open(&load->links[i], paths[i / load->connections], i / load->connections);
    for (int i = 0; i < load->contenders_count; i++) {
        load->contenders[i].number = i;
        load->contenders[i].link = &load->links[i % load->links_count];
    }
}

int main(int argc, char **argv)
{
    // Static: what it points to counts as in use to the end.
    static struct load load = {
        .connections = 8, .owners = 1, .keys = 1, .ttl_ms = 3000, .wait_ms = -1};

    parse_options(&load, argc, argv);
    load.key = argv[optind];
    (void)signal(SIGTERM, on_signal);
    if (load.store_path)
        store_open(load.store_path);
    connect_all(&load, argv + optind + 1, argc - optind - 1);
    run(&load);
    report(&load);
    return 0;
}
