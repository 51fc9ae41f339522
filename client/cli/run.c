// `lockbroker run KEY -- CMD`: acquires the lock, runs the command, gives the lock back.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/guard.h"
#include "client/cli/holder.h"
#include "client/cli/loss.h"
#include "client/cli/message.h"
#include "client/cli/session.h"
#include "client/cli/text.h"

// How long the end is held up for the broker's word that the lock is free.
#define RUN_RELEASE_MS 2000

static const char run_help[] =
    "Usage: lockbroker run KEY [OPTION]... -- CMD [ARG]...\n"
    "\n"
    "Runs CMD while holding the lock KEY, with its exit status (128+n if signal n ended it).\n"
    "\n"
    "  --ttl DURATION           how long the lock outlives a broker that died: 30s\n"
    "                           (default: the broker's maximum; at least 1s)\n"
    "  --wait DURATION          how long to wait for the lock: 5s, 0 to try once, or forever\n"
    "                           (default: as long as the broker allows)\n"
    "  --note TEXT              the purpose, shown to whoever asks who holds the lock\n"
    "  --close                  CMD does not inherit the broker's socket: should this tool be\n"
    "                           killed, the lock is free although CMD may still run\n"
    "  --busy-code N            exit status when the lock was not granted (75)\n"
    "  --unavailable-code N     exit status when the broker or Redis cannot be reached (69)\n"
    "  --lost-code N            exit status when the lock was lost while CMD ran (76)\n"
    "  --socket PATH            the broker's socket\n"
    "                           (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n"
    "\n"
    "Durations need a unit: ms, s, m, h or d. CMD finds LOCKBROKER_KEY and LOCKBROKER_FENCE in "
    "its\n"
    "environment. When the lock is lost, CMD gets SIGTERM, and SIGKILL before the lock can go to\n"
    "another holder.\n";

struct run {
    const char *key;
    char **command;
    const char *path;
    const char *note;
    int64_t ttl_ms;
    int64_t wait_ms;
    bool close;
    int busy_code;
    int unavailable_code;
    int lost_code;
};

static int run_parse(int argc, char **argv, struct run *run)
{
    const struct arg table[] = {
        {"--ttl", ARG_DURATION, &run->ttl_ms},
        {"--wait", ARG_WAIT, &run->wait_ms},
        {"--note", ARG_TEXT, &run->note},
        {"--close", ARG_FLAG, &run->close},
        {"--busy-code", ARG_EXIT_CODE, &run->busy_code},
        {"--unavailable-code", ARG_EXIT_CODE, &run->unavailable_code},
        {"--lost-code", ARG_EXIT_CODE, &run->lost_code},
        {"--socket", ARG_TEXT, &run->path},
    };
    const struct args_spec spec = {
        .command = "run",
        .help = run_help,
        .args = table,
        .args_count = LB_ARRAY_LENGTH(table),
        .operand = "key",
        .takes_command = true,
    };
    struct args args;
    int r = args_parse(&spec, argc, argv, &args);

    if (r != 0)
        return r;
    run->key = args.operand;
    run->command = args.command;
    return 0;
}

// What the user named, checked here so that the message can name it too.
static int run_check(const struct run *run)
{
    struct request request;
    char note[LB_NOTE_BYTES_MAX + 1];
    int code = session_request(OP_ACQUIRE, run->key, &request);

    if (code != EXIT_CODE_OK)
        return code;
    if (run->note && !client_set_text(note, sizeof(note), run->note)) {
        message_print("--note takes at most %d bytes of UTF-8 without control characters",
                      LB_NOTE_BYTES_MAX);
        return EXIT_CODE_USAGE;
    }
    if (run->ttl_ms != 0 && run->ttl_ms < LB_TTL_MIN_MS) {
        message_print("--ttl has to be at least %ds", LB_TTL_MIN_MS / 1000);
        return EXIT_CODE_USAGE;
    }
    return EXIT_CODE_OK;
}

static int run_check_ttl(const struct run *run, const struct lb_client *client)
{
    char asked[DURATION_BYTES_MAX];
    char most[DURATION_BYTES_MAX];

    if (client->ttl_max_ms == LB_NONE || run->ttl_ms <= client->ttl_max_ms)
        return EXIT_CODE_OK;
    duration_format(run->ttl_ms, asked, sizeof(asked));
    duration_format(client->ttl_max_ms, most, sizeof(most));
    message_print("--ttl %s is over the broker's maximum of %s", asked, most);
    return EXIT_CODE_USAGE;
}

// The exit status as the user wants it.
static int run_map_code(const struct run *run, int code)
{
    if (code == EXIT_CODE_BUSY)
        return run->busy_code;
    if (code == EXIT_CODE_UNAVAILABLE)
        return run->unavailable_code;
    if (code == EXIT_CODE_LOST)
        return run->lost_code;
    return code;
}

static void run_report_busy(const struct run *run, int result, const struct reply *reply)
{
    char key[TEXT_ESCAPED_BYTES(LB_KEY_BYTES_MAX)];
    char holder[HOLDER_BYTES_MAX] = "another";
    char waited[DURATION_BYTES_MAX] = "";

    if (reply->holder)
        holder_describe(reply->holder, holder, sizeof(holder));
    text_escape(run->key, key, sizeof(key));
    if (result == LB_E_BUSY) {
        message_print_escaped("the lock '%s' is held by %s; try again later, or use --wait", key,
                              holder);
        return;
    }
    duration_format(reply->waited_ms > 0 ? reply->waited_ms : 0, waited, sizeof(waited));
    message_print_escaped(
        "the lock '%s' was not granted within %s, it is held by %s; try again later", key, waited,
        holder);
}

static int run_acquire(const struct run *run, struct lb_client *client, struct lb_grant **ret_grant)
{
    struct lb_acquire_options options = {
        .size = sizeof(options),
        .note = run->note,
        .ttl_ms = run->ttl_ms,
        .wait_ms = run->wait_ms,
    };
    struct call *refusal;
    int r = client_acquire(client, run->key, &options, ret_grant, &refusal);

    if (r == LB_E_BUSY || r == LB_E_TIMEOUT)
        run_report_busy(run, r, &refusal->incoming->reply);
    else if (r > 0)
        session_report_refusal(r, &client->refusal);
    else if (r < 0)
        session_report_failure(r, run->path);
    calls_free(&client->calls, refusal);
    return session_exit_code(r);
}

static int run_set_environment(const struct lb_grant *grant)
{
    char fence[32];

    (void)snprintf(fence, sizeof(fence), "%" PRId64, lb_grant_fence(grant));
    if (setenv("LOCKBROKER_KEY", lb_grant_key(grant), 1) == 0 &&
        setenv("LOCKBROKER_FENCE", fence, 1) == 0)
        return EXIT_CODE_OK;
    return session_out_of_memory();
}

static int run_status_code(int status)
{
    return WIFSIGNALED(status) ? EXIT_CODE_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

// Gives the lock back and waits a while for the outcome. Returns false when the lock turns out not
// to have been ours up to now, and says so unless that was told before.
static bool run_release(struct lb_grant *grant, const char *key, bool was_told)
{
    struct lb_release_result result = {.outcome = LB_RELEASED};
    const char *reason;
    int r = client_release(grant, NULL, RUN_RELEASE_MS, &result);

    if (r == LB_E_NOT_HELD || (r == 0 && result.outcome == LB_WAS_LOST)) {
        reason = result.reason[0] ? result.reason : "not_held";
        if (!was_told)
            message_print("the lock '%s' was lost while the command ran: %s (%s)", key,
                          loss_clause(reason), reason);
        return false;
    }
    if (was_told)
        return false;
    if (r != 0)
        message_print("the lock '%s' could not be given back (%s); it frees itself when its lease "
                      "ends",
                      key, lb_error_text(r));
    else if (result.outcome == LB_UNCONFIRMED)
        message_print("Redis did not confirm that the lock '%s' is free; it is within %" PRId64
                      " ms",
                      key, result.frees_within_ms);
    return true;
}

// False when the grant was told so late that it may be over: we were stopped while it came.
static bool run_is_fresh(struct lb_grant *grant)
{
    int64_t margin_ms = guard_margin_ms(lb_grant_ttl_ms(grant));

    if (client_now_ms() < lb_grant_deadline_ms(grant) - margin_ms)
        return true;
    return lb_check(grant) == 0 && lb_valid(grant);
}

static int run_command(const struct run *run, struct lb_client *client, struct lb_grant *grant)
{
    struct guard_result result = {0};
    int code = run_set_environment(grant);
    int r = 0;

    if (code == EXIT_CODE_OK && !run_is_fresh(grant)) {
        result.was_lost = true;
        message_print("the lock '%s' was over before the command could start; nothing was run",
                      run->key);
    } else if (code == EXIT_CODE_OK) {
        r = guard_run(client, grant, run->command, !run->close, &result);
    }
    if (r != 0) {
        message_print("cannot start a process: %s", strerror(-r));
        code = EXIT_CODE_INTERNAL;
    } else if (code == EXIT_CODE_OK) {
        code = run_status_code(result.status);
    }
    // Whatever the command's own status: what it did may have overlapped with another holder's.
    return run_release(grant, run->key, result.was_lost) ? code : run->lost_code;
}

int run_main(int argc, char **argv)
{
    struct run run = {
        .wait_ms = LB_WAIT_FOREVER,
        .busy_code = EXIT_CODE_BUSY,
        .unavailable_code = EXIT_CODE_UNAVAILABLE,
        .lost_code = EXIT_CODE_LOST,
    };
    struct lb_client *client;
    struct lb_grant *grant;
    int r = run_parse(argc, argv, &run);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = run_check(&run);
    if (code == EXIT_CODE_OK)
        code = session_open(run.path, "lockbroker run", &client);
    if (code != EXIT_CODE_OK)
        return run_map_code(&run, code);
    code = run_check_ttl(&run, client);
    if (code == EXIT_CODE_OK)
        code = run_acquire(&run, client, &grant);
    if (code == EXIT_CODE_OK)
        code = run_command(&run, client, grant);
    else
        code = run_map_code(&run, code);
    lb_close(client);
    return code;
}
