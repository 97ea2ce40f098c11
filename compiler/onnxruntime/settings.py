"""Options of a session and of a run, under ONNX Runtime's names.

Those that say what is computed or with how many threads have a meaning here. Those that only say how ONNX Runtime goes
about it (memory patterns, arenas, executors, other optimisation levels) are kept and change nothing. Those that ask
for something that we have not are refused by name.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING

from .failures import InvalidArgument, NotImplemented

if TYPE_CHECKING:
    from ...targets.plain import Json

log = logging.getLogger("halotile.onnxruntime")

FLUSH = "session.set_denormal_as_zero"
MOST_LIBRARIES = "halotile.libraries"  # how many sets of shapes a session keeps libraries of
WEIGHTS = "halotile.weights"
PRECISION = "halotile.precision"
LIBRARIES = 8


class GraphOptimizationLevel(IntEnum):
    """``ORT_DISABLE_ALL`` keeps the order of operations (``exact``); the others do what a build does."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Without a meaning here: a model's kernels run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Without a meaning here."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class Entries:
    """Text by text, as options of sessions and runs have it beside their fields."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(f"a configuration entry is text by text, not {key!r}: {value!r}")
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise InvalidArgument(f"there is no configuration entry {key!r}")
        return self._entries[key]


class SessionOptions(Entries):
    """What a session is asked for.

    ``intra_op_num_threads``: threads of a run, 0 for the processor's cores. ``graph_optimization_level``:
    ``ORT_DISABLE_ALL`` builds with ``exact``. ``add_free_dimension_override_by_name`` fixes open dimensions, so that
    the library is built with the session. Entries: ``session.set_denormal_as_zero`` ("1"), ``halotile.libraries``
    (how many sets of shapes libraries are kept for, 8), ``halotile.weights`` ("float16", "int8") and
    ``halotile.precision`` ("bfloat16").
    """

    def __init__(self) -> None:
        super().__init__()
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.optimized_model_filepath = ""
        self.use_deterministic_compute = False  # every build is
        self.use_per_session_threads = True
        self.logid = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.free_dimensions: dict[str, int] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Sets a configuration entry; those that have no meaning here are kept."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry's text; InvalidArgument where there is none."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fixes every dimension of that name."""
        self.free_dimensions[str(name)] = int(value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        raise _refused("free dimensions by denotation", "add_free_dimension_override_by_name fixes them by name")

    def add_initializer(self, name: str, value: object) -> None:
        raise _refused("initialisers from outside of the model", "put them into the model")

    def add_external_initializers(self, names: object, values: object) -> None:
        raise _refused("initialisers from outside of the model", "put them into the model")

    def register_custom_ops_library(self, path: str) -> None:
        raise _refused("libraries of custom operators", "express the operator as an ONNX function")

    def has_providers(self) -> bool:
        return False

    def _whole(self, entry: str, usual: int) -> int:
        text = self._entries.get(entry, str(usual))
        if not text.isdigit() or int(text) < 1:
            raise InvalidArgument(f"{entry}={text!r}: give a whole number from 1")
        return int(text)

    def libraries(self) -> int:
        """How many libraries a session keeps."""
        return self._whole(MOST_LIBRARIES, LIBRARIES)

    def build_options(self) -> Json:
        """The arguments of :func:`halotile.compile` that these options stand for."""
        if self.enable_profiling:
            raise _refused("profiles of a session", "`halotile bench MODEL --profile` times each kernel")
        if self.optimized_model_filepath:
            log.warning("optimized_model_filepath is passed over: what a build makes is a library and no ONNX file")
        threads = int(self.intra_op_num_threads)
        if threads < 0:
            raise InvalidArgument(f"intra_op_num_threads={threads}: give a number of threads, or 0 for all cores")
        exact = int(self.graph_optimization_level) == GraphOptimizationLevel.ORT_DISABLE_ALL
        return {
            "threads": threads or None,
            "exact": exact,
            "float_mode": "exact" if exact else "strict",
            "weights": self._entries.get(WEIGHTS, "float32"),
            "precision": self._entries.get(PRECISION, "float32"),
            "flush_denormals": self._entries.get(FLUSH, "0") == "1",
        }


class RunOptions(Entries):
    """What a run is asked for. ``terminate`` ends runs before they begin; the rest changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.terminate = False
        self.only_execute_path_to_fetches = False
        self.training_mode = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Sets a configuration entry, which is kept."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry's text; InvalidArgument where there is none."""
        return self._get(key)


def _refused(what: str, instead: str) -> NotImplemented:
    return NotImplemented(f"{what} are not supported; {instead}")
