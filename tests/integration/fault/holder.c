// A program that holds a lock by the C library and says what the library tells it. It may not look
// at a clock or the socket by itself: what is tested is what lb_valid() and the calls say.
//
//     fault_holder SOCKET KEY TTL_MS
//
// prints "granted FENCE DEADLINE_MS", waits for a line on its standard input, and then prints one
// line with all that the library says about the grant.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/lockbroker.h"

int main(int argc, char **argv)
{
    struct lb_acquire_options options = {.size = sizeof(options), .no_renew = true};
    struct lb_release_result result = {.outcome = LB_RELEASED};
    struct lb_client *client;
    struct lb_grant *grant;
    char line[8];

    if (argc != 4)
        return 2;
    options.ttl_ms = atol(argv[3]);
    if (lb_connect(argv[1], NULL, &client) != 0 ||
        lb_acquire(client, argv[2], &options, &grant) != 0)
        return 1;
    printf("granted %" PRId64 " %" PRId64 "\n", lb_grant_fence(grant), lb_grant_deadline_ms(grant));
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return 1;

    bool is_valid = lb_valid(grant);
    int extended = lb_extend(grant, 0, 0);
    int checked = lb_check(grant);
    const bool is_lost = lb_grant_state(grant) == LB_GRANT_LOST;
    int released = lb_release(grant, NULL, &result);

    printf("valid=%d extend=%d check=%d lost=%d release=%d was_lost=%d\n", is_valid, extended,
           checked, is_lost, released, result.outcome == LB_WAS_LOST);
    lb_close(client);
    return 0;
}
