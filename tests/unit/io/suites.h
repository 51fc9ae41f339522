#ifndef LB_TESTS_UNIT_IO_SUITES_H
#define LB_TESTS_UNIT_IO_SUITES_H

#include <check.h>

Suite *accept_suite(void);
Suite *conn_suite(void);
Suite *conn_end_suite(void);
Suite *hearing_suite(void);
Suite *identity_suite(void);
Suite *inbox_suite(void);
Suite *lateness_suite(void);
Suite *launch_suite(void);
Suite *listener_suite(void);
Suite *loop_suite(void);
Suite *notify_suite(void);
Suite *pump_suite(void);

#endif
