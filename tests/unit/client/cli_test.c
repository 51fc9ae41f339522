// The tool's pure parts: durations, text for the terminal, holders in words, command lines.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "client/cli/args.h"
#include "client/cli/duration.h"
#include "client/cli/guard.h"
#include "client/cli/holder.h"
#include "client/cli/loss.h"
#include "client/cli/text.h"
#include "tests/unit/client/suites.h"

START_TEST(durations_are_parsed)
{
    static const struct {
        const char *text;
        int result;
        int64_t ms;
    } cases[] = {
        {"0", 0, 0},
        {"0s", 0, 0},
        {"500ms", 0, 500},
        {"30s", 0, 30000},
        {"5m", 0, 300000},
        {"2h", 0, 7200000},
        {"1d", 0, 86400000},
        {"30", DURATION_E_NO_UNIT, -7},
        {"", DURATION_E_MALFORMED, -7},
        {"s", DURATION_E_MALFORMED, -7},
        {"-1s", DURATION_E_MALFORMED, -7},
        {"+1s", DURATION_E_MALFORMED, -7},
        {" 1s", DURATION_E_MALFORMED, -7},
        {"1 s", DURATION_E_MALFORMED, -7},
        {"1.5s", DURATION_E_MALFORMED, -7},
        {"1w", DURATION_E_MALFORMED, -7},
        {"1S", DURATION_E_MALFORMED, -7},
        {"9007199254740991ms", 0, 9007199254740991},
        {"9007199254740992ms", DURATION_E_MALFORMED, -7},
        {"99999999999999999999ms", DURATION_E_MALFORMED, -7},
        {"999999999999d", DURATION_E_MALFORMED, -7},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        int64_t ms = -7;

        ck_assert_msg(duration_parse(cases[i].text, &ms) == cases[i].result, "%s", cases[i].text);
        ck_assert_msg(ms == cases[i].ms, "%s", cases[i].text);
    }
}
END_TEST

START_TEST(durations_are_written)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "0ms"},       {999, "999ms"},       {1000, "1s"},    {4250, "4.2s"},
        {60000, "1m"},    {185000, "3m 5s"},    {3600000, "1h"}, {7440000, "2h 4m"},
        {86400000, "1d"}, {442800000, "5d 3h"},
    };
    char text[DURATION_BYTES_MAX];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        duration_format(cases[i].ms, text, sizeof(text));
        ck_assert_str_eq(text, cases[i].text);
    }
    duration_format_up(28001, text, sizeof(text));
    ck_assert_str_eq(text, "29s");
    duration_format_up(28000, text, sizeof(text));
    ck_assert_str_eq(text, "28s");
    duration_format_up(350, text, sizeof(text));
    ck_assert_str_eq(text, "350ms");
}
END_TEST

START_TEST(text_cannot_drive_the_terminal)
{
    static const struct {
        const char *text;
        const char *escaped;
    } cases[] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\x1b[31m", "\\x1b[31m"},
        {"a\tb\n", "a\\x09b\\x0a"},
        {"\x7f", "\\x7f"},
        {"\xc2\x9b"
         "1m",
         "\\xc2\\x9b1m"},
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"},
        {"\xe2\x81\xa7", "\\xe2\\x81\\xa7"},
        {"\xe2\x80\x93", "\xe2\x80\x93"},
        {"\xff", "\\xff"},
        {"back\\slash", "back\\\\slash"},
    };
    char escaped[64];

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        text_escape(cases[i].text, escaped, sizeof(escaped));
        ck_assert_str_eq(escaped, cases[i].escaped);
    }
    text_escape("abc\x01", escaped, 6);
    ck_assert_str_eq(escaped, "abc");
    text_quote("a \"b\" \\ \x01", escaped, sizeof(escaped));
    ck_assert_str_eq(escaped, "\"a \\\"b\\\" \\\\ \\x01\"");
    text_quote("abcdef", escaped, 6);
    ck_assert_str_eq(escaped, "\"abc\"");
    text_quote("abcdef", escaped, 3);
    ck_assert_str_eq(escaped, "\"\"");
    ck_assert_uint_eq(text_width("gr\xc3\xbc\xc3\x9f"), 4);
}
END_TEST

START_TEST(holders_are_described)
{
    struct holder local = {.kind = HOLDER_LOCAL,
                           .pid = 12,
                           .uid = 0,
                           .client = "lockbroker run",
                           .note = "nightly",
                           .fence = 3,
                           .held_ms = 185000,
                           .ttl_left_ms = LB_NONE};
    struct holder foreign = {.kind = HOLDER_FOREIGN,
                             .pid = LB_NONE,
                             .uid = LB_NONE,
                             .fence = LB_NONE,
                             .held_ms = LB_NONE,
                             .ttl_left_ms = LB_NONE,
                             .without_expiry = true};
    struct holder broker = {.kind = HOLDER_BROKER,
                            .host = "vm\x1b",
                            .pid = LB_NONE,
                            .uid = LB_NONE,
                            .fence = LB_NONE,
                            .held_ms = LB_NONE,
                            .ttl_left_ms = 2000};
    char text[HOLDER_BYTES_MAX];
    char small[10];

    holder_describe(&local, text, sizeof(text));
    ck_assert_str_eq(text, "pid 12 of uid 0 (lockbroker run), \"nightly\", for 3m 5s");
    holder_describe_former(&local, text, sizeof(text));
    ck_assert_str_eq(text,
                     "pid 12 of uid 0 (lockbroker run), \"nightly\", which held it for 3m 5s");
    local.note = "the \"big\" one";
    holder_describe_former(&local, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, ", \"the \\\"big\\\" one\", which"));
    holder_describe(&broker, text, sizeof(text));
    ck_assert_str_eq(text, "another lockbroker on host vm\\x1b, expires in 2s");
    holder_describe(&foreign, text, sizeof(text));
    ck_assert_str_eq(text, "a program that does not use the broker, without expiry");
    holder_describe(&local, small, sizeof(small));
    ck_assert_str_eq(small, "pid 12 of");
}
END_TEST

struct parsed {
    int result;
    bool flag;
    int64_t wait_ms;
    struct args args;
};

static struct parsed parse(char **argv)
{
    struct parsed parsed = {.wait_ms = 77};
    const struct arg table[] = {{"--flag", ARG_FLAG, &parsed.flag},
                                {"--wait", ARG_WAIT, &parsed.wait_ms}};
    const struct args_spec spec = {.command = "run",
                                   .help = "",
                                   .args = table,
                                   .args_count = 2,
                                   .operand = "key",
                                   .takes_command = true};
    int argc = 0;

    while (argv[argc])
        argc++;
    parsed.result = args_parse(&spec, argc, argv, &parsed.args);
    return parsed;
}

#define ARGV(...)  ((char *[]){(char[]){"run"}, __VA_ARGS__, NULL})
#define WORD(text) ((char[]){text})

START_TEST(command_lines_that_are_right)
{
    struct parsed p;

    p = parse(ARGV(WORD("k"), WORD("--flag"), WORD("--wait"), WORD("5s"), WORD("--"), WORD("c"),
                   WORD("--flag")));
    ck_assert_int_eq(p.result, 0);
    ck_assert(p.flag);
    ck_assert_int_eq(p.wait_ms, 5000);
    ck_assert_str_eq(p.args.operand, "k");
    ck_assert_str_eq(p.args.command[0], "c");
    ck_assert_str_eq(p.args.command[1], "--flag");
    ck_assert_ptr_null(p.args.command[2]);

    p = parse(ARGV(WORD("--wait=forever"), WORD("k"), WORD("c"), WORD("--help")));
    ck_assert_int_eq(p.result, 0);
    ck_assert_int_eq(p.wait_ms, ARGS_WAIT_FOREVER);
    ck_assert_str_eq(p.args.command[0], "c");
    ck_assert_str_eq(p.args.command[1], "--help");

    p = parse(ARGV(WORD("--"), WORD("-k"), WORD("--"), WORD("c")));
    ck_assert_int_eq(p.result, 0);
    ck_assert(!p.flag);
    ck_assert_str_eq(p.args.operand, "-k");
    ck_assert_str_eq(p.args.command[0], "c");

    p = parse(ARGV(WORD("--help"), WORD("--nonsense")));
    ck_assert_int_eq(p.result, ARGS_E_HELP);
}
END_TEST

START_TEST(command_lines_that_are_wrong)
{
    ck_assert_int_eq(parse(ARGV(WORD("k"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("--"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("--wat"), WORD("--"), WORD("c"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("-x"), WORD("c"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("--wait"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("--wait"), WORD("5"), WORD("c"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("k"), WORD("--flag=1"), WORD("c"))).result, -EINVAL);
    ck_assert_int_eq(parse(ARGV(WORD("--flag"))).result, -EINVAL);
}
END_TEST

START_TEST(the_margin_to_a_deadline)
{
    ck_assert_int_eq(guard_margin_ms(1000), 100);
    ck_assert_int_eq(guard_margin_ms(3000), 300);
    ck_assert_int_eq(guard_margin_ms(30000), 3000);
    ck_assert_int_eq(guard_margin_ms(600000), 3000);
}
END_TEST

START_TEST(when_the_command_is_stopped)
{
    // Behind the broker's own word, at D - M; and SIGKILL, after half of the rest, still before D.
    ck_assert_int_eq(guard_stop_at_ms(100000, 30000, LB_NONE), 98500);
    ck_assert_int_eq(guard_stop_at_ms(100000, 1000, LB_NONE), 99950);
    // A question that is only slow changes nothing.
    ck_assert_int_eq(guard_stop_at_ms(100000, 30000, 98499), 98500);
    ck_assert_int_eq(guard_stop_at_ms(100000, 1000, 99949), 99950);
    // One that was asked late is given its time, but none past the deadline.
    ck_assert_int_eq(guard_stop_at_ms(100000, 30000, 98600), 98800);
    ck_assert_int_eq(guard_stop_at_ms(100000, 30000, 99900), 99250);
    ck_assert_int_eq(guard_stop_at_ms(100000, 1000, 99960), 99975);
    ck_assert_int_eq(guard_stop_at_ms(100000, 1000, 100000), 100200);
}
END_TEST

START_TEST(reasons_have_clauses)
{
    ck_assert_str_eq(loss_clause("deleted"), "its key was deleted from Redis");
    ck_assert_str_eq(loss_doubt_clause("no_answer"), "Redis does not answer");
    ck_assert_str_eq(loss_doubt_clause("clock"),
                     "the clock of Redis jumped ahead, and the lease ends sooner");
    ck_assert_str_eq(loss_clause("of_the_future"), "for a reason that this version does not know");
    ck_assert_str_eq(loss_doubt_clause(""), "for a reason that this version does not know");
}
END_TEST

Suite *cli_suite(void)
{
    Suite *suite = suite_create("client/cli");
    TCase *tcase = tcase_create("cli");

    tcase_add_test(tcase, durations_are_parsed);
    tcase_add_test(tcase, durations_are_written);
    tcase_add_test(tcase, text_cannot_drive_the_terminal);
    tcase_add_test(tcase, holders_are_described);
    tcase_add_test(tcase, command_lines_that_are_right);
    tcase_add_test(tcase, command_lines_that_are_wrong);
    tcase_add_test(tcase, the_margin_to_a_deadline);
    tcase_add_test(tcase, when_the_command_is_stopped);
    tcase_add_test(tcase, reasons_have_clauses);
    suite_add_tcase(suite, tcase);
    return suite;
}
