// A name that stands for several addresses. The linker puts the resolver here before libuv's: it
// asks the real one, and then tells of the addresses that the test wants.
#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

#define ADDRESSES_MAX 12

static struct addrinfo list[ADDRESSES_MAX];
static struct sockaddr_in sockets[ADDRESSES_MAX];
static size_t list_count; // 0: what the real resolver said
static uv_getaddrinfo_cb caller;
static int start_error;           // what the next question is refused with; 0: it is asked
static bool is_silent;            // the next question is never answered
static uv_getaddrinfo_t *unheard; // that one

static struct server server, other;
static struct rig rig;

int __real_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback,
                          const char *node, const char *service, const struct addrinfo *hints);
int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback,
                          const char *node, const char *service, const struct addrinfo *hints);
void __real_uv_freeaddrinfo(struct addrinfo *addresses);
void __wrap_uv_freeaddrinfo(struct addrinfo *addresses);

static void on_real(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses)
{
    if (list_count > 0) {
        __real_uv_freeaddrinfo(addresses);
        caller(request, 0, &list[0]);
    } else {
        caller(request, status, addresses);
    }
}

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback,
                          const char *node, const char *service, const struct addrinfo *hints)
{
    int error = start_error;

    start_error = 0;
    if (error)
        return error;
    caller = callback;
    if (is_silent) {
        is_silent = false;
        unheard = request;
        return 0;
    }
    return __real_uv_getaddrinfo(loop, request, on_real, node, service, hints);
}

void __wrap_uv_freeaddrinfo(struct addrinfo *addresses)
{
    if (addresses != &list[0])
        __real_uv_freeaddrinfo(addresses);
}

static void address_add(int port)
{
    struct sockaddr_in *socket = &sockets[list_count];
    struct addrinfo *info = &list[list_count];

    ck_assert_uint_lt(list_count, ADDRESSES_MAX);
    *socket = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *info = (struct addrinfo){
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)socket, .ai_addrlen = sizeof(*socket)};
    if (list_count > 0)
        list[list_count - 1].ai_next = info;
    list_count++;
}

static void setup(void)
{
    server_start(&server, true, NULL);
    server_start(&other, true, NULL);
    rig_init(&rig, NULL);
    rig_use_tcp(&rig, "localhost", 1);
    list_count = 0;
    caller = NULL;
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
    server_stop(&other);
}

START_TEST(test_next_after_refused)
{
    address_add(server_free_port());
    address_add(server_free_port());
    address_add(server.port);
    rig_open_up(&rig);
    ck_assert_int_eq(rig.downs, 0);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 1);
}
END_TEST

START_TEST(test_next_after_replica)
{
    server_run(&other, "REPLICAOF 127.0.0.1 1");
    address_add(other.port);
    address_add(server.port);
    rig_open_up(&rig);
    ck_assert_int_eq(rig.downs, 0);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 1);
}
END_TEST

START_TEST(test_next_after_silence)
{
    rig.options.connect_timeout_ms = 200;
    server_pause(&other);
    address_add(other.port);
    address_add(server.port);
    rig_open_up(&rig);
    ck_assert_int_eq(rig.downs, 0);
    server_resume(&other);
}
END_TEST

START_TEST(test_all_refused)
{
    address_add(server_free_port());
    address_add(server_free_port());
    rig_open(&rig);
    rig_await_down(&rig, 2);
    list[1].ai_next = NULL;
    sockets[1].sin_port = htons((uint16_t)server.port);
    rig_await_up(&rig, 1);
}
END_TEST

START_TEST(test_only_so_many)
{
    for (int i = 0; i < 8; i++)
        address_add(server_free_port());
    address_add(server.port);
    rig_open(&rig);
    rig_await_down(&rig, 2);
    ck_assert_int_eq(rig.ups, 0);
}
END_TEST

START_TEST(test_no_usable_address)
{
    address_add(server.port);
    list[0].ai_family = AF_UNIX;
    address_add(server.port);
    list[1].ai_addrlen = 1000;
    rig_open(&rig);
    rig_await_down(&rig, 2);
    ck_assert_int_eq(rig.ups, 0);
}
END_TEST

START_TEST(test_a_question_that_cannot_be_asked)
{
    address_add(server.port);
    start_error = UV_ENOMEM;
    rig_open(&rig);
    rig_await_down(&rig, 1);
    rig_await_up(&rig, 1);
    ck_assert_int_eq(rig.downs, 1);
}
END_TEST

START_TEST(test_a_name_that_is_not_resolved_in_time)
{
    rig.options.connect_timeout_ms = 100;
    address_add(server.port);
    is_silent = true;
    rig_open(&rig);
    rig_await_down(&rig, 1);
    ck_assert_int_eq(rig.ups, 0);
    rig_await_up(&rig, 1);

    // An answer after all is nobody's any more.
    ck_assert_ptr_nonnull(unheard);
    caller(unheard, 0, &list[0]);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig.ups, 1);
}
END_TEST

START_TEST(test_close_while_resolving)
{
    address_add(server.port);
    rig_open(&rig);
    while (!caller)
        (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(rig.ups + rig.downs, 0);
}
END_TEST

Suite *addresses_suite(void)
{
    Suite *suite = suite_create("redis/addresses");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_next_after_refused);
    tcase_add_test(tcase, test_next_after_replica);
    tcase_add_test(tcase, test_next_after_silence);
    tcase_add_test(tcase, test_all_refused);
    tcase_add_test(tcase, test_only_so_many);
    tcase_add_test(tcase, test_no_usable_address);
    tcase_add_test(tcase, test_a_question_that_cannot_be_asked);
    tcase_add_test(tcase, test_a_name_that_is_not_resolved_in_time);
    tcase_add_test(tcase, test_close_while_resolving);
    suite_add_tcase(suite, tcase);
    return suite;
}
