/* Elements as numbers: random ones, reading them, comparing them. */
#include <string.h>

#include "program.h"

static uint64_t next(uint64_t *state) { /* SplitMix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Nearly normal, without libm: the sum of twelve uniform numbers has variance 1. */
static double nearly_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) {
        sum += (double)(next(state) >> 11) * 0x1p-53;
    }
    return sum;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Only for random numbers: cut off, and nothing below 2^-14. */
static uint16_t half_of(float value) {
    uint32_t bits = bits_of(value);
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    uint32_t sign = bits >> 16 & 0x8000;
    return (uint16_t)(exponent < -14 ? sign : sign | (uint32_t)(exponent + 15) << 10 | (bits >> 13 & 0x3ff));
}

static double half_value(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 31) {
        return of_bits(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent == 0) {
        return (sign ? -1.0 : 1.0) * (double)fraction * 0x1p-24;
    }
    return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

int is_floating(const char *dtype) { return !strncmp(dtype, "float", 5) || !strcmp(dtype, "bfloat16"); }

static int is_float8(const char *dtype) { return !strncmp(dtype, "float8", 6); }

double element(const char *dtype, const void *data, size_t index) {
    const char *place = data;
    if (!strcmp(dtype, "float32")) {
        return (double)((const float *)data)[index];
    }
    if (!strcmp(dtype, "float64")) {
        return ((const double *)data)[index];
    }
    if (!strcmp(dtype, "float16")) {
        return half_value(((const uint16_t *)data)[index]);
    }
    if (!strcmp(dtype, "bfloat16")) {
        return of_bits((uint32_t)((const uint16_t *)data)[index] << 16);
    }
    if (!strcmp(dtype, "int64")) {
        return (double)((const int64_t *)data)[index];
    }
    if (!strcmp(dtype, "uint64")) {
        return (double)((const uint64_t *)data)[index];
    }
    if (!strcmp(dtype, "int32")) {
        return (double)((const int32_t *)data)[index];
    }
    if (!strcmp(dtype, "uint32")) {
        return (double)((const uint32_t *)data)[index];
    }
    if (!strcmp(dtype, "int16")) {
        return (double)((const int16_t *)data)[index];
    }
    if (!strcmp(dtype, "uint16")) {
        return (double)((const uint16_t *)data)[index];
    }
    return !strcmp(dtype, "int8") ? (double)(signed char)place[index] : (double)(unsigned char)place[index];
}

/* Floats are nearly normal; bytes below 100; wider integers, which often index a table, 0 or 1. */
void fill_random(const halotile_tensor *tensor, void *data, uint64_t seed) {
    const char *dtype = tensor->dtype;
    size_t size = tensor->elements ? tensor->bytes / tensor->elements : 1;
    unsigned char *place = data;
    for (size_t i = 0; i < tensor->elements; ++i, place += size) {
        float value = is_floating(dtype) ? (float)nearly_normal(&seed) : 0;
        if (!strcmp(dtype, "float32")) {
            memcpy(place, &value, sizeof value);
        } else if (!strcmp(dtype, "float64")) {
            double wide = (double)value;
            memcpy(place, &wide, sizeof wide);
        } else if (!strcmp(dtype, "float16") || !strcmp(dtype, "bfloat16")) {
            uint16_t half = dtype[0] == 'b' ? (uint16_t)(bits_of(value) >> 16) : half_of(value);
            memcpy(place, &half, sizeof half);
        } else if (is_float8(dtype)) {
            *place = (unsigned char)(next(&seed) & 0x3f); /* finite in every one of the formats */
        } else {
            *place = (unsigned char)(next(&seed) % (size == 1 && strcmp(dtype, "bool") ? 100 : 2));
        }
    }
}

static double magnitude(double value) { return value < 0 ? -value : value; }

static int is_finite(double value) { return value - value == 0; }

static double half_ulps(const char *dtype) {
    return !strcmp(dtype, "float16") ? 2 * 0x1p-10 : !strcmp(dtype, "bfloat16") ? 2 * 0x1p-7 : 0;
}

static struct comparison compare_exactly(const halotile_tensor *tensor, const char *data, const char *reference) {
    struct comparison result = {0, 0, 0, 0};
    size_t size = tensor->elements ? tensor->bytes / tensor->elements : 1;
    for (size_t i = 0; i < tensor->elements; ++i) {
        if (memcmp(data + i * size, reference + i * size, size) != 0) {
            result.worst = result.wrong++ ? result.worst : i;
            result.error = 1;
        }
    }
    return result;
}

struct comparison compare_tensors(const halotile_tensor *tensor, const void *data, const void *reference, double rtol,
                                  double atol) {
    const char *dtype = tensor->dtype;
    struct comparison result = {0, 0, 0, 0};
    double top = 0;
    if (!is_floating(dtype) || is_float8(dtype)) {
        return compare_exactly(tensor, data, reference);
    }
    for (size_t i = 0; i < tensor->elements; ++i) {
        double wanted = magnitude(element(dtype, reference, i));
        top = is_finite(wanted) && wanted > top ? wanted : top;
    }
    rtol = rtol < half_ulps(dtype) ? half_ulps(dtype) : rtol;
    result.limit = rtol * top + atol;
    for (size_t i = 0; i < tensor->elements; ++i) {
        double got = element(dtype, data, i), wanted = element(dtype, reference, i);
        if (is_finite(got) && is_finite(wanted)) {
            double error = magnitude(got - wanted);
            result.wrong += error > result.limit;
            if (error > result.error) {
                result.error = error, result.worst = i;
            }
        } else if (!(got == wanted || (got != got && wanted != wanted))) {
            result.wrong += 1;
            if (is_finite(result.error)) {
                result.error = __builtin_inf(), result.worst = i;
            }
        }
    }
    return result;
}
