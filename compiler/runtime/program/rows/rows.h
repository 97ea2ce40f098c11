/* Plain rows in files and pipes: rows one behind the other, each with its pixels, a pixel with all of its channels. */
#ifndef HALOTILE_ROWS_H
#define HALOTILE_ROWS_H

#include "program.h"

enum number { OWN, BYTES, SHORTS }; /* as the model has them, uint8, uint16 */

/* A file, a pipe, or the standard streams ("-"), with what its numbers are. */
struct rows {
    const halotile_rows *about;
    const char *path, *partial; /* partial: what is written before it takes the path's place */
    int file;
    enum number number;
    float scale;
    size_t outer, inner;     /* channels (and images), and pixels of a row */
    size_t raw_bytes;        /* of a row in the file */
    unsigned char *raw;      /* the rows of a step, as in the file */
    unsigned char *tensor;   /* the same as the library has them */
    int64_t done, start;     /* rows so far; where they begin in the file */
};

void rows_prepare(struct rows *rows, const halotile_rows *about, const char *path, enum number number, float scale);
void rows_open_source(struct rows *rows);
void rows_open_target(struct rows *rows);
/* Whether the source can be read again: it is a file. */
int rows_rewindable(struct rows *rows);
void rows_rewind(struct rows *rows);
/* The next rows as a tensor, `most` of them unless they end; gives how many. */
int64_t rows_read(struct rows *rows, int64_t most);
/* Writes the tensor's rows. */
void rows_write(struct rows *rows, int64_t count);
void write_bytes(const struct rows *rows, const void *data, size_t bytes);
/* A target is whole: it appears under its name. */
void rows_close_target(struct rows *rows);
void rows_free(struct rows *rows);

#endif
