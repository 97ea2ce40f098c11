/* Tensors in files: numpy's .npy (versions 1 to 3, little-endian, C order), or the bare bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* numpy's kind and size of an element. Types that numpy lacks (bfloat16, float8) are opaque bytes in its files. */
static const struct {
    const char *dtype, *code;
} codes[] = {
    {"float32", "f4"}, {"float64", "f8"}, {"float16", "f2"}, {"bfloat16", "V2"}, {"bool", "b1"},
    {"int8", "i1"},    {"int16", "i2"},   {"int32", "i4"},   {"int64", "i8"},    {"uint8", "u1"},
    {"uint16", "u2"},  {"uint32", "u4"},  {"uint64", "u8"},
};

static const char *code_of(const char *dtype) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i) {
        if (!strcmp(codes[i].dtype, dtype)) {
            return codes[i].code;
        }
    }
    return "V1"; /* the float8 family */
}

int is_npy(const char *path) {
    size_t length = strlen(path);
    return length >= 4 && !strcmp(path + length - 4, ".npy");
}

static void shape_text(const halotile_tensor *tensor, char *text, size_t room) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < tensor->rank && used < room; ++i) {
        used += (size_t)snprintf(text + used, room - used, "%s%zu", i ? ", " : "", tensor->shape[i]);
    }
    if (tensor->rank == 1 && used < room) {
        snprintf(text + used, room - used, ",");
    }
}

/* What follows "'key':" in a header, spaces skipped; NULL when the key is not there. */
static const char *entry(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at || !(at = strchr(at, ':'))) {
        return NULL;
    }
    for (++at; *at == ' ';) {
        ++at;
    }
    return at;
}

static void check_type(const char *path, const halotile_tensor *tensor, const char *descr) {
    const char *code = code_of(tensor->dtype);
    if (!descr || (*descr != '\'' && *descr != '"')) {
        fail(EXIT_ERROR, "%s: not an array of plain numbers", path);
    }
    int width = (int)strcspn(descr + 1, "'\"");
    if (descr[1] == '>') {
        fail(EXIT_ERROR, "%s: big-endian numbers; save it with .astype('%s')", path, tensor->dtype);
    }
    const char *given = strchr("<|=", descr[1]) ? descr + 2 : descr + 1;
    if (strncmp(given, code, strlen(code)) != 0 || given + strlen(code) != descr + 1 + width) {
        fail(EXIT_ERROR, "%s: its dtype is %.*s, '%s' is %s; convert it with .astype('%s')", path, width, descr + 1,
             tensor->name, tensor->dtype, tensor->dtype);
    }
}

/* The numbers of "(2, 3)", `room` of them at most; gives how many there are. */
static size_t parse_dims(const char *path, const char *shape, size_t *dims, size_t room) {
    size_t count = 0;
    const char *at = shape && *shape == '(' ? shape + 1 : NULL;
    if (!at) {
        fail(EXIT_ERROR, "%s: no .npy header", path);
    }
    for (;; ++count) {
        char *end;
        at += strspn(at, " ,");
        unsigned long size = strtoul(at, &end, 10);
        if (end == at) {
            return count;
        }
        if (count < room) {
            dims[count] = size;
        }
        at = end + (*end == 'L');
    }
}

static void check_dims(const char *path, const halotile_tensor *tensor, const char *shape) {
    char expected[512];
    size_t *dims = allocate((tensor->rank + 1) * sizeof *dims);
    int same = parse_dims(path, shape, dims, tensor->rank) == tensor->rank;
    for (size_t i = 0; same && i < tensor->rank; ++i) {
        same = dims[i] == tensor->shape[i];
    }
    if (!same) {
        int width = (int)strcspn(shape, ")") + 1;
        shape_text(tensor, expected, sizeof expected);
        fail(EXIT_ERROR, "%s: its shape is %.*s, '%s' has (%s)", path, width, shape, tensor->name, expected);
    }
    free(dims);
}

/* The text of a .npy header; the file is left at the first element. */
static char *header_of(const char *path, FILE *file) {
    unsigned char start[12];
    size_t length;
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) {
        fail(EXIT_ERROR, "%s: not a .npy file", path);
    }
    length = (size_t)start[8] | (size_t)start[9] << 8;
    if (start[6] >= 2) {
        if (fread(start + 10, 1, 2, file) != 2) {
            fail(EXIT_ERROR, "%s: cut short in its header", path);
        }
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (start[6] > 3 || length > 1u << 20) {
        fail(EXIT_ERROR, "%s: a .npy version that is not known", path);
    }
    char *header = allocate(length + 1);
    if (fread(header, 1, length, file) != length) {
        fail(EXIT_ERROR, "%s: cut short in its header", path);
    }
    return header;
}

static FILE *open_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail(EXIT_ERROR, "can't read %s: %s", path, strerror(errno));
    }
    return file;
}

size_t file_dims(const char *path, size_t *dims, size_t room) {
    FILE *file = open_file(path);
    char *header = header_of(path, file);
    size_t count = parse_dims(path, entry(header, "'shape'"), dims, room);
    free(header);
    fclose(file);
    return count;
}

/* Reads a .npy header, which must be that of the tensor, and leaves the file at the first element. */
static void read_header(const char *path, FILE *file, const halotile_tensor *tensor) {
    char *header = header_of(path, file);
    check_type(path, tensor, entry(header, "'descr'"));
    check_dims(path, tensor, entry(header, "'shape'"));
    const char *order = entry(header, "'fortran_order'");
    if (order && !strncmp(order, "True", 4) && tensor->rank > 1) {
        fail(EXIT_ERROR, "%s: columns first; save it with numpy.ascontiguousarray", path);
    }
    free(header);
}

void tensor_read(const char *path, const halotile_tensor *tensor, void *data) {
    FILE *file = open_file(path);
    if (is_npy(path)) {
        read_header(path, file, tensor);
    }
    size_t got = fread(data, 1, tensor->bytes, file);
    if (ferror(file)) {
        fail(EXIT_ERROR, "can't read %s: %s", path, strerror(errno));
    }
    if (got != tensor->bytes) {
        fail(EXIT_ERROR, "%s: it holds %zu bytes of data, '%s' has %zu", path, got, tensor->name, tensor->bytes);
    }
    if (fgetc(file) != EOF) {
        fail(EXIT_ERROR, "%s: it holds more than the %zu bytes of '%s'", path, tensor->bytes, tensor->name);
    }
    fclose(file);
}

static int write_header(FILE *file, const halotile_tensor *tensor) {
    char shape[512], header[768];
    const char *code = code_of(tensor->dtype);
    shape_text(tensor, shape, sizeof shape);
    int length = snprintf(header, sizeof header, "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                          code[1] == '1' ? '|' : '<', code, shape);
    int padding = 63 - (10 + length) % 64; /* so that the data begins on a multiple of 64 */
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    start[8] = (unsigned char)((length + padding + 1) & 0xff);
    start[9] = (unsigned char)((length + padding + 1) >> 8);
    fwrite(start, 1, sizeof start, file);
    fprintf(file, "%s%*s\n", header, padding, "");
    return !ferror(file);
}

void tensor_write(const char *path, const halotile_tensor *tensor, const void *data) {
    size_t room = strlen(path) + sizeof ".partial";
    char *partial = allocate(room);
    snprintf(partial, room, "%s.partial", path);
    FILE *file = fopen(partial, "wb");
    int good = file && (!is_npy(path) || write_header(file, tensor)) &&
               fwrite(data, 1, tensor->bytes, file) == tensor->bytes;
    int error = errno;
    if (file && fclose(file) != 0 && good) {
        good = 0, error = errno;
    }
    if (good && rename(partial, path) != 0) {
        good = 0, error = errno;
    }
    if (!good) {
        remove(partial);
        fail(EXIT_ERROR, "can't write %s: %s", path, strerror(error));
    }
    free(partial);
}
