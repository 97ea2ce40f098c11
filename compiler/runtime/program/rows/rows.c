/* Plain rows: read and written by the step, turned from pixels into planes and back, converted on the way. */
#define _GNU_SOURCE
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *text_of(const struct rows *rows, int target) {
    if (strcmp(rows->path, "-")) {
        return rows->path;
    }
    return target ? "the standard output" : "the standard input";
}

static size_t size_of(const struct rows *rows) {
    return rows->number == OWN ? rows->about->element_bytes : rows->number == BYTES ? 1 : 2;
}

void rows_prepare(struct rows *rows, const halotile_rows *about, const char *path, enum number number, float scale) {
    int converted = number != OWN || scale != 1;
    *rows = (struct rows){.about = about, .path = path, .file = -1, .number = number, .scale = scale};
    if (converted && strcmp(about->dtype, "float32")) {
        fail(EXIT_ERROR, "'%s' is %s, and only float32 is converted or multiplied", about->name, about->dtype);
    }
    rows->outer = rows->inner = 1;
    for (size_t i = 0; i < about->rank; ++i) {
        rows->outer *= i < about->axis ? about->shape[i] : 1;
        rows->inner *= i > about->axis ? about->shape[i] : 1;
    }
    rows->raw_bytes = rows->outer * rows->inner * size_of(rows);
    rows->raw = allocate(about->shape[about->axis] * rows->raw_bytes);
    rows->tensor = allocate(about->shape[about->axis] * about->row_bytes);
}

void rows_open_source(struct rows *rows) {
    rows->file = strcmp(rows->path, "-") ? open(rows->path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (rows->file < 0) {
        fail(EXIT_ERROR, "can't read %s: %s", rows->path, strerror(errno));
    }
    rows->start = lseek(rows->file, 0, SEEK_CUR);
}

int rows_rewindable(struct rows *rows) {
    struct stat about;
    return rows->start >= 0 && fstat(rows->file, &about) == 0 && S_ISREG(about.st_mode);
}

void rows_rewind(struct rows *rows) {
    rows->done = 0;
    if (lseek(rows->file, rows->start, SEEK_SET) < 0) {
        fail(EXIT_ERROR, "can't read %s again: %s", text_of(rows, 0), strerror(errno));
    }
}

/* What a program leaves behind that ends before a target is whole. */
static const char *unfinished[64];

static void remove_unfinished(void) {
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; ++i) {
        if (unfinished[i]) {
            remove(unfinished[i]);
        }
    }
}

static void remember(const char *partial) {
    static int first = 1;
    if (first) {
        atexit(remove_unfinished);
        first = 0;
    }
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; ++i) {
        if (!unfinished[i]) {
            unfinished[i] = partial;
            return;
        }
    }
}

static void forget(const char *partial) {
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; ++i) {
        unfinished[i] = unfinished[i] == partial ? NULL : unfinished[i];
    }
}

void rows_open_target(struct rows *rows) {
    struct stat about;
    if (!strcmp(rows->path, "-")) {
        rows->file = STDOUT_FILENO;
        return;
    }
    const char *path = rows->path;
    if (stat(rows->path, &about) != 0 || S_ISREG(about.st_mode)) { /* pipes and devices are written as they are */
        size_t room = strlen(rows->path) + sizeof ".partial";
        char *partial = allocate(room);
        snprintf(partial, room, "%s.partial", rows->path);
        rows->partial = path = partial;
    }
    rows->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (rows->file < 0) {
        fail(EXIT_ERROR, "can't write %s: %s", rows->path, strerror(errno));
    }
    if (rows->partial) {
        remember(rows->partial);
    }
}

void rows_close_target(struct rows *rows) {
    if (close(rows->file) != 0 || (rows->partial && rename(rows->partial, rows->path) != 0)) {
        fail(EXIT_ERROR, "can't write %s: %s", text_of(rows, 1), strerror(errno));
    }
    forget(rows->partial);
}

/* Fills `data` as far as the source goes, however little a pipe gives at once. */
static size_t read_bytes(const struct rows *rows, unsigned char *data, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        ssize_t part = read(rows->file, data + got, bytes - got);
        if (part < 0 && errno != EINTR) {
            fail(EXIT_ERROR, "can't read %s: %s", text_of(rows, 0), strerror(errno));
        }
        if (part == 0) {
            break;
        }
        got += part > 0 ? (size_t)part : 0;
    }
    return got;
}

void write_bytes(const struct rows *rows, const void *data, size_t bytes) {
    const unsigned char *at = data;
    while (bytes) {
        ssize_t part = write(rows->file, at, bytes);
        if (part < 0 && errno != EINTR) {
            fail(EXIT_ERROR, "can't write %s: %s", text_of(rows, 1), strerror(errno));
        }
        at += part > 0 ? part : 0;
        bytes -= part > 0 ? (size_t)part : 0;
    }
}

static void plane_in(const struct rows *rows, size_t channel, int64_t count, float *plane) {
    size_t pixels = (size_t)count * rows->inner, channels = rows->outer;
    const uint16_t *shorts = (const uint16_t *)rows->raw;
    const float *floats = (const float *)rows->raw;
    for (size_t i = 0; i < pixels; ++i) {
        size_t at = i * channels + channel;
        plane[i] = rows->number == OWN ? floats[at] : rows->number == BYTES ? (float)rows->raw[at] : (float)shorts[at];
    }
    if (rows->scale != 1) {
        for (size_t i = 0; i < pixels; ++i) {
            plane[i] *= rows->scale;
        }
    }
}

/* Bytes as they are, from pixels to planes, or back with `out`. */
static void turn(const struct rows *rows, int64_t count, int out) {
    size_t size = rows->about->element_bytes, pixels = (size_t)count * rows->inner;
    for (size_t o = 0; o < rows->outer; ++o) {
        for (size_t i = 0; i < pixels; ++i) {
            unsigned char *plane = rows->tensor + (o * pixels + i) * size;
            unsigned char *pixel = rows->raw + (i * rows->outer + o) * size;
            memcpy(out ? pixel : plane, out ? plane : pixel, size);
        }
    }
}

int64_t rows_read(struct rows *rows, int64_t most) {
    size_t got = read_bytes(rows, rows->raw, (size_t)most * rows->raw_bytes), left = got % rows->raw_bytes;
    int64_t count = (int64_t)(got / rows->raw_bytes);
    if (left) {
        fail(EXIT_ERROR, "%s ends within row %lld: it has %zu of its %zu bytes", text_of(rows, 0),
             (long long)(rows->done + count), left, rows->raw_bytes);
    }
    rows->done += count;
    if (rows->number == OWN && rows->scale == 1) {
        turn(rows, count, 0);
        return count;
    }
    for (size_t o = 0; o < rows->outer; ++o) {
        plane_in(rows, o, count, (float *)rows->tensor + o * (size_t)count * rows->inner);
    }
    return count;
}

static void plane_out(const struct rows *rows, size_t channel, int64_t count, const float *plane) {
    size_t pixels = (size_t)count * rows->inner, channels = rows->outer;
    float most = rows->number == BYTES ? 255 : 65535;
    for (size_t i = 0; i < pixels; ++i) {
        size_t at = i * channels + channel;
        float value = plane[i] * rows->scale;
        if (rows->number == OWN) {
            ((float *)rows->raw)[at] = value;
            continue;
        }
        value = rintf(value);
        value = value > 0 ? value < most ? value : most : 0; /* what is no number is zero */
        if (rows->number == BYTES) {
            rows->raw[at] = (unsigned char)value;
        } else {
            ((uint16_t *)rows->raw)[at] = (uint16_t)value;
        }
    }
}

void rows_write(struct rows *rows, int64_t count) {
    if (rows->number == OWN && rows->scale == 1) {
        turn(rows, count, 1);
    } else {
        for (size_t o = 0; o < rows->outer; ++o) {
            plane_out(rows, o, count, (float *)rows->tensor + o * (size_t)count * rows->inner);
        }
    }
    rows->done += count;
    write_bytes(rows, rows->raw, (size_t)count * rows->raw_bytes);
}

void rows_free(struct rows *rows) {
    free(rows->raw);
    free(rows->tensor);
    free((void *)rows->partial);
}
