// The JSON writer by itself.
#include "proto/json_out.h"

#include <errno.h>

#include "tests/unit/proto/alloc.h"
#include "tests/unit/proto/suites.h"

static void write_sample(struct json_out *out)
{
    json_out_object_begin(out);
    json_out_member_int(out, "min", INT64_MIN);
    json_out_member_bool(out, "yes", true);
    json_out_name(out, "list");
    json_out_array_begin(out);
    json_out_null(out);
    json_out_object_begin(out);
    json_out_object_end(out);
    json_out_bool(out, false);
    json_out_array_end(out);
    json_out_member_text(out, "text", "\"\\/\b\f\n\r\t\x01\x7F \xC3\xA9\xFF\xC3");
    json_out_object_end(out);
    json_out_newline(out);
}

static const char sample[] =
    "{\"min\":-9223372036854775808,\"yes\":true,\"list\":[null,{},false],"
    "\"text\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f \xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\"}\n";

START_TEST(the_writer_is_compact_and_escapes)
{
    struct buf buf;
    struct json_out out;

    buf_init(&buf, 1000);
    json_out_init(&out, &buf);
    write_sample(&out);
    ck_assert_int_eq(json_out_error(&out), 0);
    ck_assert_uint_eq(buf_length(&buf), sizeof(sample) - 1);
    ck_assert_mem_eq(buf_bytes(&buf), sample, sizeof(sample) - 1);
    buf_clear(&buf);
}
END_TEST

START_TEST(the_writer_keeps_its_first_error)
{
    struct buf buf;
    struct json_out out;

    for (size_t cap = 0; cap < sizeof(sample) - 1; cap++) {
        buf_init(&buf, cap);
        json_out_init(&out, &buf);
        write_sample(&out);
        ck_assert_int_eq(json_out_error(&out), -ENOBUFS);
        buf_clear(&buf);
    }
    buf_init(&buf, 1000);
    json_out_init(&out, &buf);
    alloc_fail_after(0);
    write_sample(&out);
    (void)alloc_restore();
    ck_assert_int_eq(json_out_error(&out), -ENOMEM);
    ck_assert_uint_eq(buf_length(&buf), 0);
    buf_clear(&buf);
}
END_TEST

Suite *json_out_suite(void)
{
    Suite *suite = suite_create("json_out");
    TCase *tcase = tcase_create("json_out");

    tcase_add_test(tcase, the_writer_is_compact_and_escapes);
    tcase_add_test(tcase, the_writer_keeps_its_first_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
