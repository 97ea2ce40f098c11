/* Shapes that every run chooses: what a shape may be, what follows from it, and runs at one. */
#ifndef HALOTILE_SHAPES_H
#define HALOTILE_SHAPES_H

#include <stddef.h>
#include <stdint.h>

#include "instance.h"

/* Fills the facts of a shape. Returns HALOTILE_ERROR_SHAPE for one that the model does not take; the words are those of
 * halotile_shape_text. */
int halotile_shape_facts(const int64_t *symbols, int64_t *facts);

/* Bytes of the arena at a shape for a number of threads (0: the default), or 0 when there can't be so many of either. */
size_t halotile_arena_bytes_for(const int64_t *facts, int threads);

/* Bytes of a tensor: of `rank` dimensions from `dims` on, each element of so many bytes. */
size_t halotile_tensor_bytes(const int64_t *dims, size_t rank, size_t element_bytes);

/* An instance that runs at the shape of these facts, and at all whose arenas take no more. */
int halotile_create_for(int threads, const int64_t *facts, const struct halotile_memory *arena,
                        struct halotile_instance **instance);
int halotile_run_shape(struct halotile_instance *instance, const int64_t *symbols, const void *const *inputs,
                       void *const *outputs);

/* What was wrong with the last shape that this thread had refused. */
const char *halotile_shape_text(void);

#endif
