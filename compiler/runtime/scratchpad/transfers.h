/* Transfers between memory and the scratchpad.
 *
 * Compiled stripes call the halotile_scratchpad_* functions. These start and await transfers by the three functions that
 * the model's header declares, which the firmware of a real machine supplies; where it doesn't, the reference below
 * stands in: a thread that copies, bounds checks, and a trace.
 */
#ifndef HALOTILE_TRANSFERS_H
#define HALOTILE_TRANSFERS_H

#include <stddef.h>
#include <stdint.h>

/* `lines` runs of `line_bytes` bytes each; strides are in bytes, from the start of one to the start of the next. */
struct halotile_transfer {
    unsigned char *scratch;
    unsigned char *memory;
    size_t line_bytes;
    size_t lines;
    size_t scratch_stride;
    size_t memory_stride;
};

enum halotile_event_kind {
    HALOTILE_EVENT_LOAD = 0,
    HALOTILE_EVENT_STORE = 1,
    HALOTILE_EVENT_WAIT_LOAD = 2,
    HALOTILE_EVENT_WAIT_STORE = 3,
    HALOTILE_EVENT_COMPUTE = 4
};

/* Times are seconds of a steady clock. Of a transfer, `start` and `end` are those of the copying, and `issued` is
 * when it was asked for; `number` counts the events of a kind (a wait has that of its transfer). */
struct halotile_event {
    int kind;
    int number;
    double issued;
    double start;
    double end;
};

enum halotile_transfer_error {
    HALOTILE_TRANSFER_CLOSED = -1,  /* no scratchpad is open in this thread */
    HALOTILE_TRANSFER_BOUNDS = -2,  /* outside of the scratchpad */
    HALOTILE_TRANSFER_OVERLAP = -3, /* of scratch that an unfinished transfer uses */
    HALOTILE_TRANSFER_FULL = -4,    /* more unfinished transfers than there is room for */
    HALOTILE_TRANSFER_UNKNOWN = -5, /* no such request, or it has been awaited */
    HALOTILE_TRANSFER_PENDING = -6, /* closed with a transfer that nobody awaited */
    HALOTILE_TRANSFER_THREAD = -7   /* the thread could not be started */
};

/* The reference. A request is a number from 0; errors are negative. One scratchpad a calling thread. */
int halotile_reference_open(void *scratch, size_t bytes);
int halotile_reference_load(const struct halotile_transfer *transfer);
int halotile_reference_store(const struct halotile_transfer *transfer);
int halotile_reference_wait(int request);
void halotile_reference_compute(int stripe);
int halotile_reference_close(void);

/* Moves up to `capacity` events, oldest first, of scratchpads that were closed since the last call; returns how many. */
size_t halotile_reference_trace(struct halotile_event *events, size_t capacity);

/* The code as it is; a negative one makes the run under way fail. */
int32_t halotile_scratchpad_checked(int code);

/* What compiled code calls; defined in the model's generated file. */
int32_t halotile_scratchpad_open(void *scratch, int64_t bytes);
int32_t halotile_scratchpad_load(void *scratch, void *memory, int64_t line_bytes, int64_t lines,
                                 int64_t scratch_stride, int64_t memory_stride);
int32_t halotile_scratchpad_store(void *scratch, void *memory, int64_t line_bytes, int64_t lines,
                                  int64_t scratch_stride, int64_t memory_stride);
int32_t halotile_scratchpad_wait(int32_t request);
int32_t halotile_scratchpad_compute(int32_t stripe);
int32_t halotile_scratchpad_close(void);

#endif
