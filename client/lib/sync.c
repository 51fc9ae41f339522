// The calls of the public header that wait, all made of ask, pump and take the answer; and the ones
// for event loops that only ask. A call that timed out stays known until it is answered: a grant
// that comes too late is given back at once.
#include "client/lib/client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "proto/request.h"

static int client_poll_timeout(const struct lb_client *client, int64_t deadline_ms)
{
    int timeout_ms = lb_timeout_ms(client);
    int64_t left_ms;

    if (deadline_ms == INT64_MAX)
        return timeout_ms;
    left_ms = deadline_ms - client_now_ms();
    if (left_ms < 0)
        left_ms = 0;
    if (left_ms > INT_MAX)
        left_ms = INT_MAX;
    return timeout_ms < 0 || left_ms < timeout_ms ? (int)left_ms : timeout_ms;
}

static void client_cancel(struct lb_client *client, const struct call *call)
{
    struct request request;
    struct call *cancel;

    request_init(&request);
    request.op = OP_CANCEL;
    request.given = REQUEST_F_TARGET;
    request.target.kind = REQUEST_ID_NUMBER;
    request.target.number = call->id;
    // Without memory for it the acquire just waits on; a grant is given back when it comes.
    if (client_ask(client, &request, CALL_ABANDONED, &cancel) == 0)
        (void)lb_dispatch(client);
}

int client_wait(struct lb_client *client, struct call *call, int64_t timeout_ms)
{
    int64_t deadline_ms = timeout_ms < 0 ? INT64_MAX : client_now_ms() + timeout_ms;
    struct pollfd poll_fd;

    client_write(client); // before that there is no answer to read
    for (;;) {
        if (call->is_answered)
            return 0;
        if (client_now_ms() >= deadline_ms)
            break;
        poll_fd = (struct pollfd){.fd = lb_fd(client), .events = lb_poll_events(client)};
        (void)poll(&poll_fd, 1, client_poll_timeout(client, deadline_ms));
        (void)lb_dispatch(client);
    }
    call->use = CALL_ABANDONED;
    if (call->op == OP_ACQUIRE)
        client_cancel(client, call);
    return -ETIMEDOUT;
}

// Waits for a call that was just asked and takes it, unless it timed out.
static int client_finish(struct lb_client *client, struct call *call, int64_t timeout_ms,
                         struct call **ret_call)
{
    int result;
    int r = client_wait(client, call, timeout_ms == 0 ? client->call_timeout_ms : timeout_ms);

    if (r != 0)
        return r;
    result = call->result;
    if (call->incoming)
        *ret_call = call;
    else
        calls_free(&client->calls, call);
    return result;
}

int client_request(struct lb_client *client, const struct request *request, int64_t timeout_ms,
                   struct call **ret_call)
{
    struct call *call;
    int r = client_ask(client, request, CALL_WAITED, &call);

    client_forget_refusal(client);
    if (r != 0)
        return r;
    call->wants_line = true;
    return client_finish(client, call, timeout_ms, ret_call);
}

// ---- acquire ----

static int client_ask_acquire(struct lb_client *client, const struct request *request,
                              enum call_use use, struct call **ret_call)
{
    struct lb_grant *grant;
    int r = client_usable(client);

    if (r != 0)
        return r;
    grant = client_grant_new(client, request);
    if (!grant)
        return -ENOMEM;
    r = client_ask(client, request, use, ret_call);
    if (r != 0) {
        client_grant_free(grant);
        return r;
    }
    (*ret_call)->grant = grant;
    return 0;
}

// How long the broker may take to answer an acquire: its waiting time and a call's.
static int64_t client_acquire_timeout(const struct lb_client *client, const struct request *request)
{
    int64_t wait_ms = request->wait_ms;

    if (wait_ms < 0 || (client->max_wait_ms >= 0 && client->max_wait_ms < wait_ms))
        wait_ms = client->max_wait_ms;
    return wait_ms < 0 ? -1 : wait_ms + client->call_timeout_ms;
}

int client_acquire(struct lb_client *client, const char *key,
                   const struct lb_acquire_options *options, struct lb_grant **ret_grant,
                   struct call **ret_refusal)
{
    struct request request;
    struct call *call = NULL;
    int r = client_acquire_request(key, options, &request);

    *ret_grant = NULL;
    *ret_refusal = NULL;
    client_forget_refusal(client);
    if (r != 0)
        return r;
    r = client_ask_acquire(client, &request, CALL_WAITED, &call);
    if (r != 0)
        return r;
    r = client_finish(client, call, client_acquire_timeout(client, &request), ret_refusal);
    if (r == 0) {
        *ret_grant = (*ret_refusal)->grant;
        calls_free(&client->calls, *ret_refusal);
        *ret_refusal = NULL;
    }
    return r;
}

int lb_acquire(struct lb_client *client, const char *key, const struct lb_acquire_options *options,
               struct lb_grant **ret_grant)
{
    struct call *refusal;
    int r = client_acquire(client, key, options, ret_grant, &refusal);

    calls_free(&client->calls, refusal);
    return r;
}

int lb_acquire_start(struct lb_client *client, const char *key,
                     const struct lb_acquire_options *options, uint64_t *ret_call)
{
    struct request request;
    struct call *call;
    int r = client_acquire_request(key, options, &request);

    if (r != 0)
        return r;
    r = client_ask_acquire(client, &request, CALL_STARTED, &call);
    if (r == 0)
        *ret_call = (uint64_t)call->id;
    return r;
}

int lb_cancel(struct lb_client *client, uint64_t call_id)
{
    struct request_id id = {.kind = REQUEST_ID_NUMBER, .number = (int64_t)call_id};
    struct call *call;
    int r = client_usable(client);

    if (r != 0)
        return r;
    call = calls_find(&client->calls, &id);
    if (!call || call->use != CALL_STARTED)
        return LB_E_NOT_PENDING;
    client_cancel(client, call);
    return 0;
}

// ---- a held grant ----

static int client_request_grant(struct lb_grant *grant, const struct request *request,
                                int64_t timeout_ms)
{
    struct lb_client *client = grant->client;
    struct call *answer = NULL;
    struct call *call;
    int r = client_usable(client);

    client_forget_refusal(client);
    if (r == 0 && grant->state == LB_GRANT_LOST)
        r = LB_E_NOT_HELD;
    if (r == 0)
        r = client_ask(client, request, CALL_WAITED, &call);
    if (r != 0)
        return r;
    call->grant = grant;
    r = client_finish(client, call, timeout_ms, &answer);
    calls_free(&client->calls, answer);
    return r;
}

int client_check(struct lb_grant *grant, int64_t timeout_ms)
{
    struct request request;

    client_grant_request(grant, OP_CHECK, &request);
    return client_request_grant(grant, &request, timeout_ms);
}

int lb_check(struct lb_grant *grant)
{
    return client_check(grant, 0);
}

int lb_extend(struct lb_grant *grant, int64_t ttl_ms, int64_t max_hold_ms)
{
    struct request request;

    if (ttl_ms < 0 || max_hold_ms < 0 || ttl_ms > LB_INTEGER_MAX || max_hold_ms > LB_INTEGER_MAX)
        return -EINVAL;
    client_grant_request(grant, OP_EXTEND, &request);
    if (ttl_ms > 0)
        request.given |= REQUEST_F_TTL_MS;
    request.ttl_ms = ttl_ms;
    if (max_hold_ms > 0)
        request.given |= REQUEST_F_MAX_HOLD_MS;
    request.max_hold_ms = max_hold_ms;
    return client_request_grant(grant, &request, 0);
}

// ---- release ----

static void client_read_release(const struct reply *reply, struct lb_release_result *ret_result)
{
    struct lb_release_result result = {.outcome = LB_RELEASED};

    if (reply->outcome && strcmp(reply->outcome, "was_lost") == 0) {
        result.outcome = LB_WAS_LOST;
        (void)snprintf(result.reason, sizeof(result.reason), "%s",
                       reply->reason ? reply->reason : "");
    } else if (!reply->outcome || strcmp(reply->outcome, "released") != 0) {
        result.outcome = LB_UNCONFIRMED;
        result.frees_within_ms = reply->frees_within_ms > 0 ? reply->frees_within_ms : 0;
    }
    *ret_result = result;
}

int client_release(struct lb_grant *grant, const char *status, int64_t timeout_ms,
                   struct lb_release_result *ret_result)
{
    struct lb_client *client = grant->client;
    struct request request;
    struct call *call = NULL;
    int r = 0;

    client_grant_request(grant, OP_RELEASE, &request);
    client_grant_free(grant);
    if (status && !client_set_text(request.status, sizeof(request.status), status))
        r = -EINVAL;
    else if (status)
        request.given |= REQUEST_F_STATUS;
    if (r == 0)
        r = client_request(client, &request, timeout_ms, &call);
    if (r == 0 && ret_result)
        client_read_release(&call->incoming->reply, ret_result);
    calls_free(&client->calls, call);
    return r;
}

int lb_release(struct lb_grant *grant, const char *status, struct lb_release_result *ret_result)
{
    return client_release(grant, status, 0, ret_result);
}

void lb_drop(struct lb_grant *grant)
{
    struct lb_client *client;

    if (!grant)
        return;
    client = grant->client;
    client_grant_give_back(grant, NULL);
    client_grant_free(grant);
    (void)lb_dispatch(client);
}
