// Random ids come from the kernel; the two instance ids are drawn apart, so that the one that is
// shown tells nothing of the one that is not.
#include "daemon/io/identity.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int draw(void *bytes, size_t length)
{
    return getentropy(bytes, length) < 0 ? -errno : 0;
}

static int draw_hex(char ret_text[IDENTITY_INSTANCE_BYTES + 1])
{
    unsigned char bytes[IDENTITY_INSTANCE_BYTES / 2];
    int r = draw(bytes, sizeof(bytes));

    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)sprintf(ret_text + 2 * i, "%02x", bytes[i]);
    return 0;
}

// The name stands between colons in every token, so nothing that could be mistaken for one stays.
static void find_host(char ret_host[LB_HOST_BYTES_MAX + 1])
{
    char name[HOST_NAME_MAX + 1] = "";

    if (gethostname(name, sizeof(name)) < 0 || !*name)
        (void)strcpy(name, "unknown");
    name[HOST_NAME_MAX] = '\0';
    for (char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr(".-_", *c))
            *c = '_';
    }
    (void)snprintf(ret_host, LB_HOST_BYTES_MAX + 1, "%.*s", LB_HOST_BYTES_MAX, name);
}

int identity_init(struct identity *identity)
{
    int r = draw_hex(identity->secret_instance);

    if (r == 0)
        r = draw_hex(identity->public_instance);
    if (r == 0)
        r = draw(&identity->seed, sizeof(identity->seed));
    find_host(identity->host);
    return r;
}
