"""What a library for a scratchpad has more of: transfers that a firmware may supply, and a trace of the reference ones.

    header   declares <name>_scratchpad, <name>_load_2d, <name>_store_2d, <name>_wait, <name>_trace
    C file   defines them as weak functions, by the reference; and what the stripes' code calls, by them
"""

from __future__ import annotations

FUNCTIONS = ("scratchpad", "load_2d", "store_2d", "wait", "trace")


def transfer_header(name: str, scratchpad_bytes: int) -> str:
    """The part of the public header."""
    return _HEADER.format(name=name, upper=name.upper(), bytes=scratchpad_bytes)


def scratchpad_text(name: str, scratchpad_bytes: int, offset: int) -> str:
    """Where the scratchpad is: the machine's, or a part of the arena."""
    return _SCRATCHPAD.format(name=name, bytes=scratchpad_bytes, offset=offset)


def transfer_text(name: str) -> str:
    """The part of the C file behind it."""
    return _TEXT.format(name=name)


_SCRATCHPAD = """
__attribute__((weak)) void *{name}_scratchpad(size_t bytes) {{
    (void)bytes;
    return 0;
}}

static void *scratchpad_of(void *arena) {{
    void *own = {name}_scratchpad({bytes});
    return own ? own : (unsigned char *)arena + {offset};
}}
"""

_HEADER = """
/* This library computes in stripes on a scratchpad: what a stripe reads is loaded, what it gives is stored, by
   transfers that run beside the computation. Three of the functions below start a transfer and wait for one. Yours
   take their place when the program defines them; otherwise a reference with a thread of its own does the work.
   A transfer moves `lines` runs of line_bytes bytes, whose starts are the strides apart. Starting one gives a request:
   a number from 0, or a negative one when it can't be. The scratch and the memory are in use until it is awaited, and
   each request is awaited once. A run fails with {upper}_ERROR_TRANSFER when a function gives a negative number. */
#define {upper}_SCRATCHPAD_BYTES {bytes}UL

/* Where the scratchpad is, aligned to {upper}_ARENA_ALIGNMENT; NULL (as it stands): a part of the arena will do. */
void *{name}_scratchpad(size_t bytes);

int {name}_load_2d(void *scratch, const void *memory, size_t line_bytes, size_t lines, size_t scratch_stride,
    size_t memory_stride);
int {name}_store_2d(void *memory, const void *scratch, size_t line_bytes, size_t lines, size_t memory_stride,
    size_t scratch_stride);
int {name}_wait(int request);

/* What the reference did: loads (0), stores (1), waits for them (2 and 3), computations (4), in the program's order. */
typedef struct {name}_event {{
    int kind;
    int number;    /* among those of its kind; a wait has that of its transfer */
    double issued; /* seconds of a steady clock */
    double start;
    double end;
}} {name}_event;

/* Takes up to `capacity` of the oldest events of finished stripes; returns how many. */
size_t {name}_trace({name}_event *events, size_t capacity);
"""

_TEXT = """
#include "transfers.h"

__attribute__((weak)) int {name}_load_2d(void *scratch, const void *memory, size_t line_bytes, size_t lines,
                                         size_t scratch_stride, size_t memory_stride) {{
    struct halotile_transfer t = {{scratch, (unsigned char *)memory, line_bytes, lines, scratch_stride, memory_stride}};
    return halotile_reference_load(&t);
}}

__attribute__((weak)) int {name}_store_2d(void *memory, const void *scratch, size_t line_bytes, size_t lines,
                                          size_t memory_stride, size_t scratch_stride) {{
    struct halotile_transfer t = {{(unsigned char *)scratch, memory, line_bytes, lines, scratch_stride, memory_stride}};
    return halotile_reference_store(&t);
}}

__attribute__((weak)) int {name}_wait(int request) {{ return halotile_reference_wait(request); }}

size_t {name}_trace({name}_event *events, size_t capacity) {{
    _Static_assert(sizeof({name}_event) == sizeof(struct halotile_event), "one layout");
    return events ? halotile_reference_trace((struct halotile_event *)events, capacity) : 0;
}}

int32_t halotile_scratchpad_open(void *scratch, int64_t bytes) {{
    return halotile_scratchpad_checked(halotile_reference_open(scratch, (size_t)bytes));
}}

int32_t halotile_scratchpad_load(void *scratch, void *memory, int64_t line_bytes, int64_t lines,
                                 int64_t scratch_stride, int64_t memory_stride) {{
    return halotile_scratchpad_checked({name}_load_2d(scratch, memory, (size_t)line_bytes, (size_t)lines,
                                                      (size_t)scratch_stride, (size_t)memory_stride));
}}

int32_t halotile_scratchpad_store(void *scratch, void *memory, int64_t line_bytes, int64_t lines,
                                  int64_t scratch_stride, int64_t memory_stride) {{
    return halotile_scratchpad_checked({name}_store_2d(memory, scratch, (size_t)line_bytes, (size_t)lines,
                                                       (size_t)memory_stride, (size_t)scratch_stride));
}}

int32_t halotile_scratchpad_wait(int32_t request) {{
    return request < 0 ? request : halotile_scratchpad_checked({name}_wait(request));
}}

int32_t halotile_scratchpad_compute(int32_t stripe) {{
    halotile_reference_compute(stripe);
    return 0;
}}

int32_t halotile_scratchpad_close(void) {{ return halotile_scratchpad_checked(halotile_reference_close()); }}
"""
