// Digits from the last to the first. It may not look at the locale.
#include "proto/decimal.h"

#include <string.h>

size_t decimal_write_unsigned(uint64_t number, char *ret_text)
{
    char digits[DECIMAL_BYTES_MAX];
    size_t start = sizeof(digits);

    do {
        digits[--start] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    memcpy(ret_text, digits + start, sizeof(digits) - start);
    return sizeof(digits) - start;
}

size_t decimal_write(int64_t number, char *ret_text)
{
    if (number >= 0)
        return decimal_write_unsigned((uint64_t)number, ret_text);
    ret_text[0] = '-';
    return 1 + decimal_write_unsigned(-(uint64_t)number, ret_text + 1); // 19 digits at most
}
