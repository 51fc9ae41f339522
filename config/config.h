// The options of lockbrokerd. Pure but for config_load_file() and config_read_password(), which
// read the file that they are given: text in, a plain struct out, or an error that says where and
// what. A struct config owns no memory, so it is copied by assignment.
#ifndef LB_CONFIG_CONFIG_H
#define LB_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/backend_url.h"
#include "proto/macros.h"

#define CONFIG_PATH_DEFAULT "/etc/lockbroker/lockbroker.conf"

// The longest line of a file, without its line end, and the largest file.
#define CONFIG_LINE_BYTES_MAX 197
#define CONFIG_FILE_BYTES_MAX (64 * 1024)

#define CONFIG_MESSAGE_BYTES_MAX 512

// The Redis keys that are the broker's own, whatever the prefix of lock keys is.
#define CONFIG_RESERVED_PREFIX "lockbroker:meta:"

// In the order of log.h's levels.
enum config_level {
    CONFIG_LEVEL_ERROR,
    CONFIG_LEVEL_WARNING,
    CONFIG_LEVEL_NOTICE,
    CONFIG_LEVEL_INFO,
    CONFIG_LEVEL_DEBUG,
};

// What to do about locks that a server that lost data may not know of.
enum config_loss {
    CONFIG_LOSS_QUARANTINE, // grant no free lock until none of them can be left
    CONFIG_LOSS_IGNORE,
};

// One member an option, named as in options.def: socket, ttl_max_ms, output_max_bytes ...
#define CONFIG_MEMBER_PATH(key, most)     char key[(most) + 1];
#define CONFIG_MEMBER_GROUP(key, most)    char key[(most) + 1];
#define CONFIG_MEMBER_BACKEND(key, most)  char key[(most) + 1];
#define CONFIG_MEMBER_PREFIX(key, most)   char key[(most) + 1];
#define CONFIG_MEMBER_DURATION(key, most) int64_t key##_ms;
#define CONFIG_MEMBER_COUNT(key, most)    int64_t key;
#define CONFIG_MEMBER_BYTES(key, most)    int64_t key##_bytes;
#define CONFIG_MEMBER_MODE(key, most)     int64_t key;
#define CONFIG_MEMBER_LEVEL(key, most)    int64_t key; // enum config_level
#define CONFIG_MEMBER_LOSS(key, most)     int64_t key; // enum config_loss

struct config {
#define X(key, type, fallback, least, most, reloadable, help) CONFIG_MEMBER_##type(key, most)
#include "config/options.def"
#undef X
};

// What is wrong, and where. `place` is a file's path, a flag such as "--set", or "".
struct config_error {
    char place[256];
    int line;        // 0: not in a line
    char option[64]; // "": none in particular
    char message[CONFIG_MESSAGE_BYTES_MAX];
};

// Writes the error as one line without newline: "FILE:12: ttl_max: ...", "--set ttl_max: ...".
// No password is ever in it.
void config_error_format(const struct config_error *error, char *ret_text, size_t size);

void config_init_defaults(struct config *config);

// Sets what the file names and leaves the rest as it is. Returns 0, -ENOENT when there is no such
// file, -EINVAL when its text is wrong, -ENOMEM, or the negative errno of opening or reading it.
// On any failure `config` is untouched and `ret_error` filled.
int config_load_file(const char *path, struct config *config,
                     struct config_error *ret_error) LB_MUST_CHECK;

// Sets one option from "key=value", as given with --set; blanks around both are ignored, as in a
// file. Returns 0, or -EINVAL with `ret_error` filled.
int config_set(struct config *config, const char *assignment,
               struct config_error *ret_error) LB_MUST_CHECK;

// Sets one option for a flag of its own, for example "--socket"; errors name the flag. Returns 0 or
// -EINVAL with `ret_error` filled.
int config_set_flag(struct config *config, const char *flag, const char *key, const char *value,
                    struct config_error *ret_error) LB_MUST_CHECK;

// Checks what concerns several options; each by itself was checked when it was set. Returns 0 or
// -EINVAL with `ret_error` filled.
int config_validate(const struct config *config, struct config_error *ret_error) LB_MUST_CHECK;

// Where the backend is, with the password from backend_password_file if that is set. Returns 0,
// -EINVAL, or the negative errno of reading the file, with `ret_error` filled.
int config_read_backend(const struct config *config, struct backend_url *ret_url,
                        struct config_error *ret_error) LB_MUST_CHECK;

// Writes every option with its value, as config_load_file() reads it. The password in the backend
// URL is written as ***.
void config_print(FILE *file, const struct config *config);

// Writes every option with its type, default, range and help.
void config_print_help(FILE *file);

// Calls back with the name of each option that differs and that only a restart can change. Returns
// how many there were. `callback` may be NULL.
size_t config_diff_needs_restart(const struct config *old_config, const struct config *new_config,
                                 void (*callback)(void *context, const char *option),
                                 void *context);

// Copies into `config` the options of `from` that can change at run time.
void config_apply_reloadable(struct config *config, const struct config *from);

// Whether the Redis key `prefix` + `key` would be one of the broker's own, so that no lock may have
// it.
bool config_key_is_reserved(const char *prefix, const char *key) LB_MUST_CHECK;

#endif
