"""What the header of a library that streams has besides: constants of the steps, and functions for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..stream.words import Port
from .names import comment
from .stream_model import kept_inputs

if TYPE_CHECKING:
    from ..spec import TensorSpec
    from .spec import LibrarySpec

CODES = {"ERROR_FINISHED": 12, "ERROR_ROWS": 13, "ERROR_HEIGHT": 14, "ERROR_PASS": 15}


def stream_header(spec: LibrarySpec) -> str:
    """The part of the header that is about streams."""
    plan, name = spec.stream, spec.identifier
    assert plan is not None
    lines = []
    for kind, group, tensors in (("input", plan.inputs, spec.inputs), ("output", plan.outputs, spec.outputs)):
        known = {t.name: t for t in tensors}
        lines += [f"     {kind} {i}  {_rows(p, known[p.name])}" for i, p in enumerate(group)]
    lines += [f"     given once  {_tensor(spec.inputs[i])}" for i in kept_inputs(spec)]
    lines += [f"     in the end  {_tensor(t)}" for t in spec.outputs if t.name in plan.still]
    return _HEADER.format(
        name=name, upper=name.upper(), lines="\n".join(lines), step=plan.rows, least=plan.least,
        multiple=plan.multiple, passes=plan.passes,
    )  # fmt: skip


def _rows(port: Port, tensor: TensorSpec) -> str:
    shape = ", ".join("rows" if a == port.axis else str(n) for a, n in enumerate(tensor.shape))
    return comment(f"{tensor.name}: {tensor.dtype}[{shape}], {port.text} rows in all")


def _tensor(tensor: TensorSpec) -> str:
    return comment(f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]")


_HEADER = """
/* Streams: an image of any height from top to bottom. Rows come in with {name}_push and go out with {name}_pull, in
   memory that does not depend on the height; what comes out is what the whole image would have given. The inputs and
   outputs above are those of one step, which a stream runs for you; of a stream they are

{lines}

   Rows that are pushed or pulled together are one tensor, row-major, as high as they are many: [1, 3, rows, width]
   holds all rows of the first channel, then all of the second. One thread uses a stream at a time. */
#define {upper}_STEP_ROWS {step} /* of the image, that a step takes */
#define {upper}_LEAST_ROWS {least} /* that an image has, */
#define {upper}_MULTIPLE_ROWS {multiple} /* of which its height is a multiple */
#define {upper}_PASSES {passes} /* how often the image is pushed */

typedef struct {name}_stream {name}_stream;

typedef struct {name}_shape {{
    int64_t rows;            /* the most rows of the image that wait to be computed or pulled; 0: those of a step */
    const void *const *kept; /* the inputs that are given once, in order; copied. NULL where there are none */
}} {name}_shape;

typedef struct {name}_rows {{
    const char *name;
    const char *dtype;
    size_t rank;
    const size_t *shape; /* with the rows of a step */
    size_t axis;         /* of the rows */
    size_t row_bytes;
    size_t element_bytes;
}} {name}_rows;

typedef struct {name}_steps {{
    int64_t step_rows, least_rows, multiple_rows;
    int passes;
    size_t input_count;
    const {name}_rows *inputs;
    size_t output_count;
    const {name}_rows *outputs;
    size_t kept_count;   /* inputs that are given once: */
    const size_t *kept;  /* their numbers */
    size_t still_count;  /* outputs without rows */
    const size_t *still;
    size_t strips;       /* of columns, that an image is computed in: 1, or each is a stream of its own */
}} {name}_steps;

/* Facts about the steps; never fails. */
const {name}_steps *{name}_stream_steps(void);

/* Bytes of a stream for a number of threads (0: the default), its arena included; `shape` may be NULL, for rows = 0.
   They do not depend on the image's height. 0 when there can't be so many threads. */
size_t {name}_stream_bytes(int threads, const {name}_shape *shape);

/* Makes a stream for one image. Returns an error code; nothing is allocated after it. */
int {name}_open(int threads, const {name}_shape *shape, {name}_stream **stream);

/* The same in memory of yours: at least {name}_stream_bytes(threads, shape), aligned to {upper}_ARENA_ALIGNMENT, yours
   again after {name}_close. */
int {name}_open_in(int threads, const {name}_shape *shape, void *memory, size_t bytes, {name}_stream **stream);

/* How many rows of the image may be pushed before any are pulled: at least those of shape->rows when none are ready. */
int64_t {name}_room(const {name}_stream *stream);

/* Gives the next `count` rows, of the one input; 0 and more, not beyond {name}_room ({upper}_ERROR_ROWS: nothing was
   taken). Computes as soon as a step is full. */
int {name}_push({name}_stream *stream, const void *rows, int64_t count);

/* The same for several inputs: `count` rows of the first, and of each other one those of the same part of the image. */
int {name}_push_all({name}_stream *stream, const void *const *rows, int64_t count);

/* How many rows of an output (of the first one) can be pulled. */
int64_t {name}_ready(const {name}_stream *stream);
int64_t {name}_ready_of(const {name}_stream *stream, size_t output);

/* Takes the next `count` rows of an output (of the first one), no more than are ready. More may be ready behind it. */
int {name}_pull({name}_stream *stream, void *rows, int64_t count);
int {name}_pull_of({name}_stream *stream, size_t output, void *rows, int64_t count);

/* No more rows come: the bottom's padding, and the last rows, which are ready or become so as rows are pulled. An image
   of a height that the network does not take is {upper}_ERROR_HEIGHT. Harmless when repeated. */
int {name}_finish({name}_stream *stream);

/* Begins the next of {upper}_PASSES passes, behind {name}_finish: the same image is pushed again. */
int {name}_again({name}_stream *stream);

/* The outputs without rows, behind the last pass, in order. */
int {name}_still({name}_stream *stream, void *const *outputs);

/* Ends a stream; NULL is fine. */
void {name}_close({name}_stream *stream);
"""
