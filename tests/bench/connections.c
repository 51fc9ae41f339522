// The shape `connections`: all contenders in one loop, each with a socket of its own and at most
// one request under way. In a turn all sockets that are ready are read, then all that is to be said
// goes out; the times are those of a line's own read and write.
#include "tests/bench/bench_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "proto/macros.h"

#define EVENTS_MAX 256
#define LINE_SIZE  1024

enum step {
    STEP_IDLE, // asks when its pause is over
    STEP_WAITING,
    STEP_HOLDING,
    STEP_RELEASING,
};

struct flow {
    struct wire wire;
    struct talk talk;
    enum step step;
    struct record record;
    int64_t due_ns;    // when the pause or the hold is over
    struct flow *next; // in its queue
    char key[KEY_SIZE];
};

// Pauses of one length are over in the order in which they began.
struct queue {
    struct flow *first;
    struct flow *last;
};

struct loop {
    const struct bench *bench;
    const struct lines_peer *peer;
    struct span span;
    struct tally tally;
    struct flow *flows;
    int epoll_fd;
    int busy; // flows that hold, or release
    struct queue said;
    struct queue holding;
    struct queue thinking;
    struct queue polling;
    struct queue pausing;
};

static void queue_add(struct queue *queue, struct flow *flow, int64_t due_ns)
{
    flow->due_ns = due_ns;
    flow->next = NULL;
    if (queue->first)
        queue->last->next = flow;
    else
        queue->first = flow;
    queue->last = flow;
}

static struct flow *queue_take(struct queue *queue, int64_t now_ns)
{
    struct flow *flow = queue->first;

    if (!flow || flow->due_ns > now_ns)
        return NULL;
    queue->first = flow->next;
    return flow;
}

// What it says goes out at the end of the turn.
static void flow_say(struct loop *loop, struct flow *flow, enum step step)
{
    flow->step = step;
    queue_add(&loop->said, flow, 0);
}

static void flow_granted(struct loop *loop, struct flow *flow, int64_t now_ns)
{
    flow->record.granted_ns = now_ns;
    loop->busy++;
    if (loop->bench->hold_ns > 0) {
        flow->step = STEP_HOLDING;
        queue_add(&loop->holding, flow, now_ns + loop->bench->hold_ns);
    } else {
        flow_say(loop, flow, STEP_RELEASING);
    }
}

// A contender that is done, or was refused, asks again at once or after a pause.
static void flow_rest(struct loop *loop, struct flow *flow, struct queue *queue, int64_t due_ns,
                      int64_t now_ns)
{
    flow->step = STEP_IDLE;
    if (due_ns > now_ns)
        queue_add(queue, flow, due_ns);
    else
        flow_say(loop, flow, STEP_WAITING);
}

static void flow_released(struct loop *loop, struct flow *flow, int64_t now_ns)
{
    flow->record.released_ns = now_ns;
    loop->busy--;
    tally_add(&loop->tally, &loop->span, &flow->record);
    flow->record.asked_ns = 0;
    flow_rest(loop, flow, &loop->thinking, now_ns + loop->bench->think_ns, now_ns);
}

static void count_failure(struct loop *loop, const char *line)
{
    char name[ERROR_NAME_SIZE];
    const char *error = strstr(line, "\"error\":\"");

    (void)snprintf(name, sizeof(name), "%s", error ? error + strlen("\"error\":\"") : line);
    name[strcspn(name, "\"\r")] = '\0';
    tally_error(&loop->tally, name);
}

static void flow_hear(struct loop *loop, struct flow *flow, const char *line, int64_t now_ns)
{
    enum answer answer = loop->peer->read(&flow->talk, line);
    bool is_releasing = flow->step == STEP_RELEASING;

    if (answer == ANSWER_NOTHING)
        return;
    if (answer == ANSWER_FAILED)
        count_failure(loop, line);
    if (answer == ANSWER_LOST)
        loop->tally.summary.lost++;
    if (is_releasing)
        flow_released(loop, flow, now_ns);
    else if (answer == ANSWER_DONE)
        flow_granted(loop, flow, now_ns);
    else if (answer == ANSWER_BUSY)
        flow_rest(loop, flow, &loop->polling, now_ns + POLL_NS, now_ns);
    else
        flow_rest(loop, flow, &loop->pausing, now_ns + PAUSE_NS, now_ns);
}

static void flow_read(struct loop *loop, struct flow *flow)
{
    size_t position = 0;
    int64_t now_ns;
    char *line;

    if (!wire_receive(&flow->wire, MSG_DONTWAIT))
        return;
    now_ns = clock_ns();
    while ((line = wire_line(&flow->wire, &position)))
        flow_hear(loop, flow, line, now_ns);
    wire_consume(&flow->wire, position);
}

static void flow_write(struct loop *loop, struct flow *flow)
{
    char text[LINE_SIZE];
    int length;

    flow->talk.is_releasing = flow->step == STEP_RELEASING;
    if (flow->talk.is_releasing) {
        length = loop->peer->write_release(&flow->talk, text, sizeof(text));
        flow->record.releasing_ns = clock_ns();
    } else {
        // One that polls asked when it did so for the first time.
        if (flow->record.asked_ns == 0)
            token_make(flow->talk.contender, flow->talk.token);
        length = loop->peer->write_acquire(&flow->talk, text, sizeof(text));
        if (flow->record.asked_ns == 0)
            flow->record.asked_ns = clock_ns();
    }
    if (length < 0 || (size_t)length >= sizeof(text))
        die_of(flow->key, "the line is too long");
    wire_send(&flow->wire, text, (size_t)length);
}

static void attend(struct loop *loop, int64_t now_ns)
{
    bool is_over = now_ns >= loop->span.ended_ns;
    struct flow *flow;

    while ((flow = queue_take(&loop->holding, now_ns)))
        flow_say(loop, flow, STEP_RELEASING);
    if (!is_over) {
        while ((flow = queue_take(&loop->thinking, now_ns)) ||
               (flow = queue_take(&loop->polling, now_ns)) ||
               (flow = queue_take(&loop->pausing, now_ns)))
            flow_say(loop, flow, STEP_WAITING);
    }
    while ((flow = queue_take(&loop->said, now_ns)))
        if (!is_over || flow->step == STEP_RELEASING)
            flow_write(loop, flow);
}

static int64_t next_due(const struct loop *loop, int64_t now_ns)
{
    const struct queue *queues[] = {&loop->holding, &loop->thinking, &loop->polling,
                                    &loop->pausing};
    int64_t due_ns = loop->span.ended_ns;

    // After the end there is only what is still held.
    if (now_ns >= due_ns)
        return loop->holding.first ? loop->holding.first->due_ns : now_ns + 1000000000;
    for (size_t i = 0; i < LB_ARRAY_LENGTH(queues); i++)
        if (queues[i]->first && queues[i]->first->due_ns < due_ns)
            due_ns = queues[i]->first->due_ns;
    return due_ns;
}

static void wait_for_lines(struct loop *loop, int64_t until_ns)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t left_ns = until_ns - clock_ns();
    struct timespec timeout = {0};
    int count;

    if (left_ns > 0)
        timeout = (struct timespec){.tv_sec = left_ns / 1000000000,
                                    .tv_nsec = (long)(left_ns % 1000000000)};
    count = epoll_pwait2(loop->epoll_fd, events, EVENTS_MAX, &timeout, NULL);
    for (int i = 0; i < count; i++)
        flow_read(loop, events[i].data.ptr);
}

static void flow_open(struct loop *loop, int number)
{
    const struct bench *bench = loop->bench;
    struct flow *flow = &loop->flows[number];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = flow};

    memset(flow, 0, sizeof(*flow));
    wire_open(&flow->wire,
              loop->peer->is_broker ? bench->brokers[number % bench->brokers_count] : bench->redis);
    key_name(bench, number, flow->key);
    flow->talk = (struct talk){.bench = bench, .key = flow->key, .contender = number};
    flow->record.contender = number;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, flow->wire.fd, &event) != 0)
        die("epoll");
}

void run_connections(const struct bench *bench, const struct lines_peer *peer)
{
    // Static: what it points to counts as in use to the end.
    static struct loop loop;
    int records_fd = records_open(bench);

    loop.bench = bench;
    loop.peer = peer;
    loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop.epoll_fd < 0)
        die("epoll");
    if (peer->prepare)
        peer->prepare(bench);
    loop.flows = memory(NULL, (size_t)bench->contenders * sizeof(*loop.flows));
    for (int i = 0; i < bench->contenders; i++)
        flow_open(&loop, i);
    loop.span = span_from(bench, clock_ns());
    for (int i = 0; i < bench->contenders; i++)
        flow_say(&loop, &loop.flows[i], STEP_WAITING);
    for (;;) {
        int64_t now_ns = clock_ns();

        attend(&loop, now_ns);
        if (now_ns >= loop.span.ended_ns && loop.busy == 0)
            break;
        wait_for_lines(&loop, next_due(&loop, now_ns));
    }
    if (!records_write(&loop.tally, records_fd))
        die(bench->records_path);
    summary_print(bench, &loop.span, &loop.tally.summary);
}
