// The connection itself: the socket, the pump and what an incoming line does. It never blocks and
// never calls back into the program: what happens is queued, and the program takes it when it
// likes. The only file that reads or writes the socket.
#include "client/lib/client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/request.h"
#include "proto/utf8.h"

#define CLIENT_READ_BYTES     16384
#define CLIENT_READS_PER_TURN 64

int64_t client_now_ms(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int client_new(int fd, struct lb_client **ret_client)
{
    struct lb_client *client = calloc(1, sizeof(*client));

    if (!client)
        return -ENOMEM;
    client->fd = fd;
    client->pid = getpid();
    client->call_timeout_ms = CLIENT_TIMEOUT_MS;
    client->max_wait_ms = LB_NONE;
    client->ttl_max_ms = LB_NONE;
    client_forget_refusal(client);
    buf_init(&client->out, CLIENT_UNWRITTEN_BYTES_MAX);
    framing_init(&client->in, LB_REPLY_LINE_BYTES_MAX);
    calls_init(&client->calls);
    TAILQ_INIT(&client->grants);
    TAILQ_INIT(&client->events);
    *ret_client = client;
    return 0;
}

int client_usable(const struct lb_client *client)
{
    return client->pid == getpid() ? client->error : -ECHILD;
}

// ---- events for the program ----

static void client_queue(struct lb_client *client, struct queued_event *queued,
                         const struct lb_event *event)
{
    queued->event = *event;
    if (queued->is_queued)
        return;
    queued->is_queued = true;
    TAILQ_INSERT_TAIL(&client->events, queued, entry);
}

static void client_unqueue(struct lb_client *client, struct queued_event *queued)
{
    if (!queued->is_queued)
        return;
    queued->is_queued = false;
    TAILQ_REMOVE(&client->events, queued, entry);
}

static void client_queue_notice(struct lb_grant *grant, enum lb_event_kind kind)
{
    client_queue(grant->client, &grant->queued, &(struct lb_event){.kind = kind, .grant = grant});
}

static void client_lose(struct lb_grant *grant, const char *reason)
{
    if (grant_lose(grant, reason))
        client_queue_notice(grant, LB_EVENT_LOST);
}

bool lb_next_event(struct lb_client *client, struct lb_event *ret_event)
{
    struct queued_event *queued = TAILQ_FIRST(&client->events);

    if (!queued || client->pid != getpid())
        return false;
    client_unqueue(client, queued);
    *ret_event = queued->event;
    calls_free(&client->calls, queued->call);
    return true;
}

// ---- grants ----

struct lb_grant *client_grant_new(struct lb_client *client, const struct request *request)
{
    struct lb_grant *grant = calloc(1, sizeof(*grant));

    if (!grant)
        return NULL;
    grant->client = client;
    memcpy(grant->key, request->key, sizeof(grant->key));
    memcpy(grant->owner, request->owner, sizeof(grant->owner));
    grant->renews = request->renew;
    return grant;
}

void client_grant_free(struct lb_grant *grant)
{
    if (!grant)
        return;
    calls_forget_grant(&grant->client->calls, grant);
    client_unqueue(grant->client, &grant->queued);
    if (grant->is_listed)
        TAILQ_REMOVE(&grant->client->grants, grant, entry);
    free(grant);
}

void client_grant_request(const struct lb_grant *grant, enum op op, struct request *ret_request)
{
    request_init(ret_request);
    ret_request->op = op;
    ret_request->given = REQUEST_F_KEY | REQUEST_F_FENCE;
    memcpy(ret_request->key, grant->key, sizeof(ret_request->key));
    ret_request->fence = grant->fence;
    if (grant->owner[0] == '\0')
        return;
    ret_request->given |= REQUEST_F_OWNER;
    memcpy(ret_request->owner, grant->owner, sizeof(ret_request->owner));
}

void client_grant_give_back(struct lb_grant *grant, const char *status)
{
    struct request request;
    struct call *call;
    int r;

    client_grant_request(grant, OP_RELEASE, &request);
    if (status && client_set_text(request.status, sizeof(request.status), status))
        request.given |= REQUEST_F_STATUS;
    r = client_ask(grant->client, &request, CALL_ABANDONED, &call);
    // A lock that cannot be given back by name is given back by the end of the connection.
    if (r == -ENOMEM)
        client_fail(grant->client, -ENOMEM);
}

// ---- answers and notices ----

static bool client_answers_acquire(struct lb_client *client, struct call *call)
{
    const struct reply *reply = &call->incoming->reply;
    struct lb_grant *grant = call->grant;

    call->grant = NULL;
    if (call->result != 0) {
        client_grant_free(grant);
        return true;
    }
    if (reply->fence == LB_NONE || reply->deadline_ms == LB_NONE || reply->ttl_ms == LB_NONE) {
        client_grant_free(grant);
        return false;
    }
    grant_take_answer(grant, reply, reply->deadline_ms - reply->ttl_ms);
    if (call->use == CALL_ABANDONED) {
        client_grant_give_back(grant, NULL);
        client_grant_free(grant);
        return true;
    }
    grant->is_listed = true;
    TAILQ_INSERT_TAIL(&client->grants, grant, entry);
    call->grant = grant;
    return true;
}

static void client_answers_grant(struct call *call)
{
    const struct reply *reply = &call->incoming->reply;
    struct lb_grant *grant = call->grant;

    if (!grant)
        return;
    if (grant->check == call)
        grant->check = NULL;
    if (call->op == OP_CHECK && call->result == 0 && !reply->held)
        call->result = LB_E_NOT_HELD;
    if (call->result == LB_E_NOT_HELD)
        client_lose(grant, "not_held");
    else if (call->result == 0)
        grant_take_answer(grant, reply, call->sent_ms);
    else
        grant->asked_ms = call->sent_ms;
}

void client_forget_refusal(struct lb_client *client)
{
    client->refusal = (struct client_refusal){.retry_ms = -1};
}

static void client_remember_refusal(struct lb_client *client, const struct call *call)
{
    const struct reply *reply = &call->incoming->reply;
    struct client_refusal *refusal = &client->refusal;

    if (call->result <= 0 || call->use == CALL_ABANDONED)
        return;
    (void)snprintf(refusal->message, sizeof(refusal->message), "%s",
                   reply->message ? reply->message : "");
    (void)snprintf(refusal->reason, sizeof(refusal->reason), "%s",
                   reply->reason ? reply->reason : "");
    refusal->retry_ms = reply->ends_in_ms >= 0 ? reply->ends_in_ms : -1;
    refusal->may_block_ms = reply->may_block_ms > 0 ? reply->may_block_ms : 0;
}

// Hands an answered call on to whoever waits for it.
static void client_deliver(struct lb_client *client, struct call *call)
{
    if (call->use == CALL_ABANDONED) {
        calls_free(&client->calls, call);
    } else if (call->use == CALL_STARTED) {
        call->queued.call = call;
        client_queue(client, &call->queued,
                     &(struct lb_event){.kind = LB_EVENT_ANSWER,
                                        .call = (uint64_t)call->id,
                                        .result = call->result,
                                        .grant = call->grant});
    }
}

// The call that a reply belongs to. A broker that takes no further connection says so in a line
// that answers no request: to the greeting, that is the answer.
static struct call *client_find_call(const struct lb_client *client,
                                     const struct incoming *incoming)
{
    struct call *first = calls_first(&client->calls);

    if (incoming->error && incoming->reply.id.kind == REQUEST_ID_NONE)
        return first && first->op == OP_HELLO ? first : NULL;
    return calls_find(&client->calls, &incoming->reply.id);
}

static bool client_take_reply(struct lb_client *client, struct incoming *incoming, const char *line,
                              size_t length)
{
    struct call *call = client_find_call(client, incoming);
    bool is_sound = true;

    if (!call) {
        calls_free_incoming(incoming);
        return false;
    }
    calls_answer(&client->calls, call, calls_result(incoming), incoming);
    if (call->wants_line)
        call->line = strndup(line, length);
    client_remember_refusal(client, call);
    if (call->op == OP_ACQUIRE)
        is_sound = client_answers_acquire(client, call);
    else
        client_answers_grant(call);
    if (!is_sound)
        call->result = -EPROTO;
    client_deliver(client, call);
    return is_sound;
}

static void client_take_notice(struct lb_client *client, const struct notice *notice)
{
    static const enum lb_event_kind kinds[] = {
        [NOTICE_SUSPECT] = LB_EVENT_SUSPECT,
        [NOTICE_OK] = LB_EVENT_OK,
        [NOTICE_LOST] = LB_EVENT_LOST,
    };
    struct lb_grant *grant;

    if (!notice->key)
        return;
    TAILQ_FOREACH (grant, &client->grants, entry) {
        if (grant->fence == notice->fence && strcmp(grant->key, notice->key) == 0)
            break;
    }
    if (grant && grant_take_notice(grant, notice))
        client_queue_notice(grant, kinds[notice->kind]);
}

static void client_take_line(struct lb_client *client, const char *line, size_t length)
{
    struct incoming *incoming = calloc(1, sizeof(*incoming));
    int r = incoming ? reply_parse(line, length, incoming) : -ENOMEM;

    if (r != 0) {
        free(incoming);
        client_fail(client, r == -ENOMEM ? -ENOMEM : -EPROTO);
        return;
    }
    if (incoming->kind == INCOMING_REPLY) {
        if (!client_take_reply(client, incoming, line, length))
            client_fail(client, -EPROTO);
        return;
    }
    if (incoming->kind == INCOMING_NOTICE)
        client_take_notice(client, &incoming->notice);
    calls_free_incoming(incoming);
}

// ---- the socket ----

void client_fail(struct lb_client *client, int error)
{
    struct call *call;

    if (client->error)
        return;
    client->error = error;
    close(client->fd);
    client->fd = -1;
    buf_clear(&client->out);
    while ((call = calls_first(&client->calls))) {
        calls_answer(&client->calls, call, error, NULL);
        if (call->op == OP_ACQUIRE)
            client_grant_free(call->grant);
        else if (call->grant && call->grant->check == call)
            call->grant->check = NULL;
        call->grant = NULL;
        client_deliver(client, call);
    }
    client_queue(client, &client->disconnected,
                 &(struct lb_event){.kind = LB_EVENT_DISCONNECTED, .result = error});
}

static void client_take_bytes(struct lb_client *client, const char *bytes, size_t length)
{
    const char *line;
    size_t line_length;
    int r;

    while (!client->error) {
        r = framing_next(&client->in, &bytes, &length, &line, &line_length);
        if (r == 0)
            return;
        if (r == FRAMING_E_LINE)
            client_take_line(client, line, line_length);
        else
            client_fail(client, r < 0 ? r : -EPROTO);
    }
}

static void client_read(struct lb_client *client)
{
    char bytes[CLIENT_READ_BYTES];
    ssize_t length;

    for (int i = 0; i < CLIENT_READS_PER_TURN && !client->error; i++) {
        length = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (length > 0)
            client_take_bytes(client, bytes, (size_t)length);
        else if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        else if (length == 0 || errno != EINTR)
            client_fail(client, -ENOTCONN);
    }
}

void client_write(struct lb_client *client)
{
    ssize_t length;

    while (!client->error && buf_length(&client->out) > 0) {
        length = send(client->fd, buf_bytes(&client->out), buf_length(&client->out),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
        if (length >= 0) {
            buf_consume(&client->out, (size_t)length);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            // What the broker said before it closed may still be there to read, a loss above all.
            client_read(client);
            client_fail(client, -ENOTCONN);
        }
    }
}

int client_ask(struct lb_client *client, const struct request *request, enum call_use use,
               struct call **ret_call)
{
    struct request numbered = *request;
    struct call *call;
    int r = client_usable(client);

    if (r != 0)
        return r;
    call = calls_add(&client->calls, request->op, use);
    if (!call)
        return -ENOMEM;
    call->sent_ms = client_now_ms();
    numbered.id.kind = REQUEST_ID_NUMBER;
    numbered.id.number = call->id;
    r = request_write(&client->out, &numbered);
    if (r != 0) {
        calls_free(&client->calls, call);
        return -ENOMEM;
    }
    *ret_call = call;
    return 0;
}

// ---- the pump ----

// Keeps the told deadline of a renewed grant fresh: the broker renews without a word, and only a
// deadline that was told counts when the broker falls silent.
static void client_check_grant(struct lb_client *client, struct lb_grant *grant)
{
    struct request request;

    client_grant_request(grant, OP_CHECK, &request);
    if (client_ask(client, &request, CALL_ABANDONED, &grant->check) == 0)
        grant->check->grant = grant;
}

static void client_tend_grants(struct lb_client *client)
{
    int64_t now_ms = client_now_ms();
    struct lb_grant *grant;

    TAILQ_FOREACH (grant, &client->grants, entry) {
        if (client->error) {
            if (!grant_is_valid(grant, now_ms))
                client_lose(grant, "disconnected");
        } else if (!grant->check && grant_check_at(grant) <= now_ms) {
            client_check_grant(client, grant);
        }
    }
}

int lb_dispatch(struct lb_client *client)
{
    if (client->pid != getpid())
        return -ECHILD;
    if (!client->error)
        client_read(client);
    client_tend_grants(client);
    client_write(client);
    return client->error;
}

int lb_fd(const struct lb_client *client)
{
    return client->fd;
}

short lb_poll_events(const struct lb_client *client)
{
    if (client->error)
        return 0;
    return buf_length(&client->out) > 0 ? POLLIN | POLLOUT : POLLIN;
}

int lb_timeout_ms(const struct lb_client *client)
{
    int64_t due_ms = INT64_MAX;
    const struct lb_grant *grant;
    int64_t left_ms;
    int64_t at_ms;

    TAILQ_FOREACH (grant, &client->grants, entry) {
        if (client->error)
            at_ms = grant->state == LB_GRANT_LOST ? INT64_MAX : grant->deadline_ms;
        else
            at_ms = grant->check ? INT64_MAX : grant_check_at(grant);
        if (at_ms < due_ms)
            due_ms = at_ms;
    }
    if (due_ms == INT64_MAX)
        return -1;
    left_ms = due_ms - client_now_ms();
    if (left_ms < 0)
        return 0;
    return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

bool lb_valid(const struct lb_grant *grant)
{
    return grant->client->pid == getpid() && grant_is_valid(grant, client_now_ms());
}

const char *lb_last_message(const struct lb_client *client)
{
    return client->refusal.message;
}

const char *lb_last_reason(const struct lb_client *client)
{
    return client->refusal.reason;
}

int64_t lb_last_retry_ms(const struct lb_client *client)
{
    return client->refusal.retry_ms;
}

int64_t lb_last_may_block_ms(const struct lb_client *client)
{
    return client->refusal.may_block_ms;
}

static void client_free_events(struct lb_client *client)
{
    struct queued_event *queued;

    while ((queued = TAILQ_FIRST(&client->events))) {
        client_unqueue(client, queued);
        calls_free(&client->calls, queued->call);
    }
}

void lb_close(struct lb_client *client)
{
    struct lb_grant *grant;

    if (!client)
        return;
    client_fail(client, -ENOTCONN);
    client_free_events(client);
    while ((grant = TAILQ_FIRST(&client->grants)))
        client_grant_free(grant);
    framing_deinit(&client->in);
    buf_clear(&client->out);
    free(client);
}
