// Reads configuration files. inih does the splitting; but it cuts long lines, joins indented ones
// to the line before, ignores text after a section and sections that it was not asked about. So
// each line passes a check of our own before inih sees it, and nothing is ignored.
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "config/error.h"
#include "config/option.h"

#define SECTION "[lockbroker]"

struct file_reader {
    const char *path;
    const char *at; // the rest of the text
    const char *end;
    int line;
    bool failed;
    bool seen[OPTIONS_COUNT];
    struct config config;
    struct config_error *error;
};

static void descriptor_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static void text_free(char **text)
{
    free(*text);
}

static size_t blanks_count(const char *line, size_t length)
{
    size_t count = 0;

    while (count < length && (line[count] == ' ' || line[count] == '\t'))
        count++;
    return count;
}

static const char *section_problem(const char *line, size_t length)
{
    size_t section_length = strlen(SECTION);
    size_t blanks;

    if (length < section_length || memcmp(line, SECTION, section_length) != 0)
        return "there is no such section; options stand in [lockbroker] or before any section";
    blanks = blanks_count(line + section_length, length - section_length);
    line += section_length + blanks;
    length -= section_length + blanks;
    if (length > 0 && (blanks == 0 || (*line != ';' && *line != '#')))
        return "after a section only a comment may follow";
    return NULL;
}

static const char *assignment_problem(const char *line, size_t length)
{
    const char *equals = memchr(line, '=', length);
    size_t name_length;

    if (!equals)
        return "the line is no option (name = value), section or comment";
    name_length = (size_t)(equals - line);
    while (name_length > 0 && (line[name_length - 1] == ' ' || line[name_length - 1] == '\t'))
        name_length--;
    if (!option_name_is_plain(line, name_length))
        return "before the = there is no option name";
    return NULL;
}

static const char *line_problem(const char *line, size_t length)
{
    size_t blanks = blanks_count(line, length);

    if (length > CONFIG_LINE_BYTES_MAX)
        return "the line is longer than 197 bytes";
    for (size_t i = 0; i < length; i++) {
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
            return "the line has a control character";
    }
    if (blanks == length || line[blanks] == '#' || line[blanks] == ';')
        return NULL;
    if (blanks > 0)
        return "the line begins with a blank; a value cannot go on in a second line";
    return *line == '[' ? section_problem(line, length) : assignment_problem(line, length);
}

static void reader_fail(struct file_reader *reader, const char *message)
{
    error_fill(reader->error, reader->path, reader->line, "", "%s", message);
    reader->failed = true;
}

// inih's source of lines, as fgets().
static char *reader_next(char *ret_line, int size, void *context)
{
    struct file_reader *reader = context;
    const char *line = reader->at;
    const char *newline, *problem;
    size_t length;

    if (reader->failed || line == reader->end)
        return NULL;
    newline = memchr(line, '\n', (size_t)(reader->end - line));
    length = (size_t)((newline ? newline : reader->end) - line);
    reader->at = newline ? newline + 1 : reader->end;
    reader->line++;
    if (newline && length > 0 && line[length - 1] == '\r')
        length--;
    problem = line_problem(line, length);
    // inih may have been built with a smaller buffer than ours is made for.
    if (!problem && length + 2 > (size_t)size)
        problem = "the line is longer than the INI library can read";
    if (problem) {
        reader_fail(reader, problem);
        return NULL;
    }
    memcpy(ret_line, line, length);
    memcpy(ret_line + length, "\n", 2);
    return ret_line;
}

// inih's sink of options. Returns non-zero on success.
static int reader_take(void *context, const char *section, const char *name, const char *value)
{
    struct file_reader *reader = context;
    const struct option *option = option_find(name);
    char message[CONFIG_MESSAGE_BYTES_MAX];

    (void)section;
    reader->failed = true;
    if (!option) {
        error_fill_unknown(reader->error, reader->path, reader->line, name);
        return 0;
    }
    if (reader->seen[option - option_at(0)]) {
        error_fill(reader->error, reader->path, reader->line, name, "the option is set twice");
        return 0;
    }
    if (option_set(option, value, &reader->config, message) < 0) {
        error_fill(reader->error, reader->path, reader->line, name, "%s", message);
        return 0;
    }
    reader->seen[option - option_at(0)] = true;
    reader->failed = false;
    return 1;
}

static int text_load(const char *path, const char *text, size_t length, struct config *config,
                     struct config_error *ret_error)
{
    struct file_reader reader = {.path = path, .at = text, .end = text + length};
    int rc;

    reader.config = *config;
    reader.error = ret_error;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        reader.at += 3;
    rc = ini_parse_stream(reader_next, &reader, reader_take, &reader);
    if (reader.failed)
        return -EINVAL;
    if (rc < 0) {
        error_fill(ret_error, path, 0, "", "out of memory");
        return -ENOMEM;
    }
    if (rc > 0) {
        error_fill(ret_error, path, rc, "", "the line is no option (name = value)");
        return -EINVAL;
    }
    *config = reader.config;
    return 0;
}

// Reads at most `size` bytes. Returns how many, or a negative errno.
static ssize_t descriptor_read(int fd, char *ret_text, size_t size)
{
    size_t length = 0;

    while (length < size) {
        ssize_t count = read(fd, ret_text + length, size - length);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    return (ssize_t)length;
}

// Opens a regular file. Returns its descriptor or a negative errno.
static int file_open(const char *path, struct config_error *ret_error)
{
    struct stat status;
    // A FIFO must not hold the daemon up, hence O_NONBLOCK.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int saved_errno = errno;

    if (fd < 0) {
        error_fill(ret_error, path, 0, "", "the file cannot be opened: %s", strerror(saved_errno));
        return -saved_errno;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        return fd;
    error_fill(ret_error, path, 0, "", "it is not a regular file");
    (void)close(fd);
    return -EINVAL;
}

// Reads a file of less than `size` bytes. Returns its length or a negative errno.
static ssize_t file_read(const char *path, char *ret_text, size_t size,
                         struct config_error *ret_error)
{
    LB_CLEANUP(descriptor_close) int fd = file_open(path, ret_error);
    ssize_t length;

    if (fd < 0)
        return fd;
    length = descriptor_read(fd, ret_text, size);
    if (length < 0) {
        error_fill(ret_error, path, 0, "", "the file cannot be read: %s", strerror((int)-length));
        return length;
    }
    if ((size_t)length == size) {
        error_fill(ret_error, path, 0, "", "the file is larger than %zu bytes", size - 1);
        return -EINVAL;
    }
    return length;
}

// A file that an editor or a full disk cut off to nothing must not put every default in force.
int config_load_file(const char *path, struct config *config, struct config_error *ret_error)
{
    LB_CLEANUP(text_free) char *text = malloc(CONFIG_FILE_BYTES_MAX + 1);
    ssize_t length;

    if (!text) {
        error_fill(ret_error, path, 0, "", "out of memory");
        return -ENOMEM;
    }
    length = file_read(path, text, CONFIG_FILE_BYTES_MAX + 1, ret_error);
    if (length < 0)
        return (int)length;
    if (length == 0) {
        error_fill(ret_error, path, 0, "",
                   "the file is empty, as if it was cut off; a comment is enough for the defaults");
        return -EINVAL;
    }
    return text_load(path, text, (size_t)length, config, ret_error);
}

static int password_take(const char *path, char *text, size_t length, struct backend_url *url,
                         struct config_error *ret_error)
{
    const char *newline = memchr(text, '\n', length);
    size_t line_length = newline ? (size_t)(newline - text) : length;
    const char *problem = NULL;

    if (line_length > 0 && text[line_length - 1] == '\r')
        line_length--;
    if (line_length == 0)
        problem = "the first line, which is the password, is empty";
    else if (line_length > BACKEND_PASSWORD_BYTES_MAX)
        problem = "the first line, which is the password, is longer than 512 bytes";
    else if (memchr(text, '\0', line_length))
        problem = "the first line, which is the password, has a NUL byte";
    if (problem) {
        error_fill(ret_error, path, 0, "", "%s", problem);
        return -EINVAL;
    }
    memcpy(url->password, text, line_length);
    url->password[line_length] = '\0';
    return 0;
}

// Makes an error about the file one about the option that names it.
static void password_error(const char *path, struct config_error *error)
{
    struct config_error about = *error;

    error_fill(error, "", 0, "backend_password_file", "%.300s: %s", path, about.message);
}

int config_read_backend(const struct config *config, struct backend_url *ret_url,
                        struct config_error *ret_error)
{
    const char *path = config->backend_password_file;
    struct backend_url url;
    const char *problem;
    char text[4096];
    ssize_t length;
    int rc = backend_url_parse(config->backend, &url, &problem);

    lb_assert(rc == 0);
    if (*path && url.kind != BACKEND_KIND_MEMORY) {
        length = file_read(path, text, sizeof(text), ret_error);
        rc = length < 0 ? (int)length : password_take(path, text, (size_t)length, &url, ret_error);
        explicit_bzero(text, sizeof(text));
    }
    if (rc < 0) {
        password_error(path, ret_error);
        return rc;
    }
    *ret_url = url;
    return 0;
}
