// Whole numbers as text. Every line that is read or written has some: printf() would take a third
// of the time that a request takes in all.
#ifndef LB_PROTO_DECIMAL_H
#define LB_PROTO_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

#define DECIMAL_BYTES_MAX 20 // of any int64_t or uint64_t, without a NUL

// Writes the number at `ret_text`, which has room for DECIMAL_BYTES_MAX, without a NUL after it.
// Returns how many bytes it has: 1..DECIMAL_BYTES_MAX.
size_t decimal_write(int64_t number, char *ret_text);
size_t decimal_write_unsigned(uint64_t number, char *ret_text);

#endif
