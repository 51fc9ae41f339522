// The entry point that libFuzzer and replay.c call.
#ifndef LB_TESTS_FUZZ_FUZZ_H
#define LB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
