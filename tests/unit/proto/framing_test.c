// Bytes in, lines out.
#include "proto/framing.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

// What came out of a framing, as text: "line|" for each line, "<too long>" and "<no memory>".
// Filling it asserts nothing: check's own allocations must not be counted.
struct story {
    bool is_left_over; // some bytes were not taken
    char text[4096];
    size_t lines;
    size_t too_long;
};

static void feed(struct framing *framing, const char *bytes, size_t length, struct story *story)
{
    const char *line = NULL;
    size_t line_bytes = 0;
    int r;

    while ((r = framing_next(framing, &bytes, &length, &line, &line_bytes)) != 0) {
        size_t used = strlen(story->text);
        size_t room = sizeof(story->text) - used;

        if (r == FRAMING_E_LINE) {
            story->lines++;
            (void)snprintf(story->text + used, room, "%.*s|", (int)line_bytes, line);
        } else if (r == FRAMING_E_TOO_LONG) {
            story->too_long++;
            (void)snprintf(story->text + used, room, "<too long>");
        } else {
            (void)snprintf(story->text + used, room, "%s",
                           r == -ENOMEM ? "<no memory>" : "<error>");
        }
    }
    story->is_left_over = story->is_left_over || length > 0;
}

static void feed_text(struct framing *framing, const char *text, struct story *story)
{
    feed(framing, text, strlen(text), story);
}

// Whatever the size of the pieces, the same comes out.
static void assert_story(size_t line_bytes_max, const char *bytes, size_t length,
                         const char *expected)
{
    for (size_t piece = 1; piece <= length; piece++) {
        struct framing framing;
        struct story story = {.lines = 0};

        framing_init(&framing, line_bytes_max);
        for (size_t at = 0; at < length; at += piece)
            feed(&framing, bytes + at, piece < length - at ? piece : length - at, &story);
        ck_assert_str_eq(story.text, expected);
        ck_assert(!story.is_left_over);
        framing_deinit(&framing);
    }
}

START_TEST(lines_end_in_lf_or_crlf_whatever_the_pieces)
{
    static const char bytes[] = "one\ntwo\r\n\n\r\nth\rree\r\r\nhalf";

    assert_story(8, bytes, sizeof(bytes) - 1, "one|two|||th\rree\r|");
}
END_TEST

START_TEST(the_limit_is_without_the_newline)
{
    assert_story(4, "1234\n", 5, "1234|");
    assert_story(4, "1234\r\n", 6, "1234|");
    assert_story(4, "12345\n1\n", 8, "<too long>1|");
    assert_story(4, "12345\r\n1\n", 9, "<too long>1|");
    assert_story(4, "1234\r5\n1\n", 9, "<too long>1|");
    assert_story(4, "1234\r\r\n1\n", 9, "<too long>1|");
}
END_TEST

START_TEST(a_long_line_is_told_once_and_skipped)
{
    assert_story(4, "123456789012345678901234567890\nok\n", 34, "<too long>ok|");
    assert_story(4, "1234567890\n1234567890\nok\n", 25, "<too long><too long>ok|");
}
END_TEST

START_TEST(an_endless_line_is_told_at_once_and_takes_no_memory)
{
    struct framing framing;
    struct story story = {.lines = 0};
    char *block = malloc(4096);

    ck_assert_ptr_nonnull(block);
    memset(block, 'a', 4096);
    framing_init(&framing, LB_REQUEST_LINE_BYTES_MAX);
    for (int i = 0; i < 256; i++) {
        feed(&framing, block, 4096, &story);
        ck_assert_uint_eq(story.too_long, i < 2 ? 0 : 1);
    }
    ck_assert_ptr_null(framing.partial.storage);
    ck_assert(!framing_has_partial(&framing));
    feed_text(&framing, "\nnext\n", &story);
    ck_assert_str_eq(story.text, "<too long>next|");
    framing_deinit(&framing);
    free(block);
}
END_TEST

START_TEST(a_line_of_the_very_limit_passes_and_one_byte_more_does_not)
{
    char *line = malloc(LB_REQUEST_LINE_BYTES_MAX + 2);
    const size_t sizes[] = {1, 7, 4096, 10000};

    ck_assert_ptr_nonnull(line);
    memset(line, 'a', LB_REQUEST_LINE_BYTES_MAX + 1);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(sizes); i++) {
        for (size_t extra = 0; extra < 2; extra++) {
            struct framing framing;
            struct story story = {.lines = 0};
            size_t length = LB_REQUEST_LINE_BYTES_MAX + extra;

            framing_init(&framing, LB_REQUEST_LINE_BYTES_MAX);
            for (size_t at = 0; at < length; at += sizes[i])
                feed(&framing, line + at, sizes[i] < length - at ? sizes[i] : length - at, &story);
            feed_text(&framing, "\n", &story);
            ck_assert_uint_eq(story.lines, 1 - extra);
            ck_assert_uint_eq(story.too_long, extra);
            framing_deinit(&framing);
        }
    }
    free(line);
}
END_TEST

START_TEST(memory_is_held_for_half_a_line_only)
{
    struct framing framing;
    struct story story = {.lines = 0};

    framing_init(&framing, 100);
    alloc_fail_after(0);
    feed_text(&framing, "one\ntwo\n", &story);
    ck_assert_int_eq(alloc_restore(), 0);
    ck_assert(!framing_has_partial(&framing));
    feed_text(&framing, "thr", &story);
    ck_assert(framing_has_partial(&framing));
    ck_assert_ptr_nonnull(framing.partial.storage);
    feed_text(&framing, "ee\n", &story);
    ck_assert(!framing_has_partial(&framing));
    ck_assert_ptr_null(framing.partial.storage);
    ck_assert_str_eq(story.text, "one|two|three|");
    framing_deinit(&framing);
}
END_TEST

START_TEST(a_line_in_one_piece_is_not_copied)
{
    struct framing framing;
    const char *bytes = "line\nrest\n";
    const char *start = bytes;
    const char *line = NULL;
    size_t length = strlen(bytes);
    size_t line_bytes = 0;

    framing_init(&framing, 100);
    ck_assert_int_eq(framing_next(&framing, &bytes, &length, &line, &line_bytes), FRAMING_E_LINE);
    ck_assert_ptr_eq(line, start);
    ck_assert_uint_eq(line_bytes, 4);
    ck_assert_ptr_eq(bytes, start + 5);
    framing_deinit(&framing);
}
END_TEST

START_TEST(a_dropped_half_line_is_skipped_to_its_newline)
{
    struct framing framing;
    struct story story = {.lines = 0};

    framing_init(&framing, 100);
    framing_drop_partial(&framing);
    feed_text(&framing, "good\nhalf", &story);
    framing_drop_partial(&framing);
    ck_assert(!framing_has_partial(&framing));
    ck_assert_ptr_null(framing.partial.storage);
    feed_text(&framing, " more", &story);
    feed_text(&framing, " end\ngood too\n", &story);
    ck_assert_str_eq(story.text, "good|good too|");
    framing_deinit(&framing);
}
END_TEST

START_TEST(without_memory_one_line_is_lost)
{
    struct framing framing;
    struct story story = {.lines = 0};

    framing_init(&framing, 1000);
    alloc_fail_after(0);
    feed_text(&framing, "lost", &story);
    ck_assert_int_eq(alloc_restore(), 1);
    ck_assert(!framing_has_partial(&framing));
    feed_text(&framing, " too\nkept\nbegun", &story);
    alloc_fail_after(0);
    char rest[400];
    memset(rest, 'x', sizeof(rest));
    rest[sizeof(rest) - 1] = '\n';
    feed(&framing, rest, sizeof(rest), &story);
    ck_assert_int_eq(alloc_restore(), 1);
    feed_text(&framing, "good\n", &story);
    ck_assert_str_eq(story.text, "<no memory>kept|<no memory>good|");
    framing_deinit(&framing);
}
END_TEST

// A line that came in pieces and has been handed out is no half line any more, though its bytes are
// still kept: there is nothing to be dropped, and what follows is heard.
START_TEST(a_line_that_was_handed_out_is_no_half_line)
{
    struct framing framing;
    const char *bytes = "f\nrest";
    size_t length = 6;
    const char *line;
    size_t line_bytes;
    struct story story = {.lines = 0};

    framing_init(&framing, 100);
    feed_text(&framing, "hal", &story);
    ck_assert(framing_has_partial(&framing));
    ck_assert_int_eq(framing_next(&framing, &bytes, &length, &line, &line_bytes), FRAMING_E_LINE);
    ck_assert(!framing_has_partial(&framing));
    framing_drop_partial(&framing);
    ck_assert_int_eq(strncmp(line, "half", line_bytes), 0);
    feed(&framing, bytes, length, &story);
    ck_assert(framing_has_partial(&framing));
    feed_text(&framing, "\n", &story);
    ck_assert_str_eq(story.text, "rest|");
    framing_deinit(&framing);
}
END_TEST

Suite *framing_suite(void)
{
    Suite *suite = suite_create("framing");
    TCase *tcase = tcase_create("framing");

    tcase_add_test(tcase, lines_end_in_lf_or_crlf_whatever_the_pieces);
    tcase_add_test(tcase, the_limit_is_without_the_newline);
    tcase_add_test(tcase, a_long_line_is_told_once_and_skipped);
    tcase_add_test(tcase, an_endless_line_is_told_at_once_and_takes_no_memory);
    tcase_add_test(tcase, a_line_of_the_very_limit_passes_and_one_byte_more_does_not);
    tcase_add_test(tcase, memory_is_held_for_half_a_line_only);
    tcase_add_test(tcase, a_line_in_one_piece_is_not_copied);
    tcase_add_test(tcase, a_dropped_half_line_is_skipped_to_its_newline);
    tcase_add_test(tcase, without_memory_one_line_is_lost);
    tcase_add_test(tcase, a_line_that_was_handed_out_is_no_half_line);
    suite_add_tcase(suite, tcase);
    return suite;
}
