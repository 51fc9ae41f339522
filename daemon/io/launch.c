// The configuration in force is made the same way at the start and at each reload.
#include "daemon/io/launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/io/listener.h"

static int load_file(const struct launch *launch, struct config *config,
                     struct config_error *ret_error)
{
    if (launch->config_path)
        return config_load_file(launch->config_path, config, ret_error);

    int r = config_load_file(CONFIG_PATH_DEFAULT, config, ret_error);

    return r == -ENOENT ? 0 : r;
}

static int apply_flags(const struct launch *launch, struct config *config,
                       struct config_error *ret_error)
{
    int r = 0;

    for (int i = 0; i < launch->assignments_count && r == 0; i++)
        r = config_set(config, launch->assignments[i], ret_error);
    if (r == 0 && launch->socket)
        r = config_set_flag(config, "--socket", "socket", launch->socket, ret_error);
    if (r == 0 && launch->backend)
        r = config_set_flag(config, "--backend", "backend", launch->backend, ret_error);
    return r;
}

int launch_config(const struct launch *launch, struct config *ret_config,
                  struct config_error *ret_error)
{
    struct config config;

    config_init_defaults(&config);

    int r = load_file(launch, &config, ret_error);

    if (r == 0)
        r = apply_flags(launch, &config, ret_error);
    if (r == 0)
        r = config_validate(&config, ret_error);
    if (r == 0)
        *ret_config = config;
    return r;
}

static int check_group(const char *group, struct config_error *ret_error)
{
    struct config_error error = {.option = "socket_group"};
    gid_t gid;

    if (!*group || listener_find_group(group, &gid) == 0)
        return 0;
    (void)snprintf(error.message, sizeof(error.message), "there is no group \"%s\"", group);
    *ret_error = error;
    return -ENOENT;
}

int launch_check(const struct config *config, struct config_error *ret_error)
{
    struct backend_url url;
    int r = config_read_backend(config, &url, ret_error);

    explicit_bzero(&url, sizeof(url));
    return r < 0 ? r : check_group(config->socket_group, ret_error);
}
