"""A stream through the C functions of a library, as its header declares them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

P, N, S = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t
KINDS = {
    "stream_bytes": (S, ctypes.c_int, P), "open": (ctypes.c_int, ctypes.c_int, P, P),
    "open_in": (ctypes.c_int, ctypes.c_int, P, P, S, P), "room": (N, P), "push": (ctypes.c_int, P, P, N),
    "push_all": (ctypes.c_int, P, P, N), "ready": (N, P), "ready_of": (N, P, S), "pull": (ctypes.c_int, P, P, N),
    "pull_of": (ctypes.c_int, P, S, P, N), "finish": (ctypes.c_int, P), "again": (ctypes.c_int, P),
    "still": (ctypes.c_int, P, P), "close": (None, P), "error_text": (ctypes.c_char_p, ctypes.c_int),
}  # fmt: skip
OK, ARGUMENT, ARENA, FINISHED, ROWS, HEIGHT, PASS = 0, 1, 4, 12, 13, 14, 15


class Shape(ctypes.Structure):
    _fields_ = [("rows", N), ("kept", P)]


class Functions:
    """The functions of the library in a folder, by their names without the model's."""

    def __init__(self, folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        header = next(folder.glob("*.h"))
        library = ctypes.CDLL(str(folder / f"lib{header.stem}.so"))
        self.plan = manifest["report"]["stream"]
        for name, (result, *arguments) in KINDS.items():
            function = getattr(library, f"{header.stem}_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def opened(self, rows: int = 0, kept: Any = (), memory: Any = None) -> P:
        """A stream; in ``memory`` if some is given."""
        pointers = (P * (len(kept) + 1))(*[a.ctypes.data for a in kept])
        shape, stream = Shape(rows, ctypes.addressof(pointers)), P()
        if memory is None:
            code = self.open(2, ctypes.byref(shape), ctypes.byref(stream))
        else:
            code = self.open_in(2, ctypes.byref(shape), memory.ctypes.data, memory.nbytes, ctypes.byref(stream))
        assert code == OK, self.error_text(code)
        return stream

    def streamed(
        self, inputs: Mapping[str, np.ndarray], specs: Mapping[str, Any], pushes: list[int], stream: P
    ) -> dict[str, np.ndarray]:
        """All outputs of an image, pushed ``pushes`` rows of the first input at a time, again and again."""
        kept: dict[str, np.ndarray] = {}
        for level in range(max([*(s["level"] + 1 for s in self.plan["statistics"]), self.plan["giving"] + 1])):
            assert not level or self.again(stream) == OK
            parts = self._pass(inputs, specs, pushes, stream)
            assert bool(parts) == (level == self.plan["giving"] and bool(self.plan["outputs"]))
            kept.update(parts)
        names = self.plan["still"]
        still = [np.zeros(specs[name].shape, specs[name].dtype) for name in names]
        pointers = (P * (len(still) + 1))(*[a.ctypes.data for a in still])
        for _ in range(2 if names else 0):
            assert self.still(stream, pointers) == OK
        self.close(stream)
        return {**kept, **dict(zip(names, still))}

    def _pass(self, inputs: Any, specs: Any, pushes: list[int], stream: P) -> dict[str, np.ndarray]:
        ports, done, turn = self.plan["inputs"], 0, 0
        total = inputs[ports[0]["name"]].shape[ports[0]["axis"]]
        parts: dict[str, list[np.ndarray]] = {p["name"]: [] for p in self.plan["outputs"]}
        while done < total:
            count = min(pushes[turn % len(pushes)], total - done, self.room(stream))
            cut = []
            for port in ports:
                a, b = (n * port["count"] // ports[0]["count"] for n in (done, done + count))
                cut.append(np.ascontiguousarray(inputs[port["name"]].take(range(a, b), port["axis"])))
            pointers = (P * len(cut))(*[c.ctypes.data for c in cut])
            code = self.push_all(stream, pointers, count)
            assert code == OK, self.error_text(code)
            done, turn = done + count, turn + 1
            self._take(parts, specs, stream, turn)
        assert self.finish(stream) == OK and self.finish(stream) == OK
        while any(self.ready_of(stream, i) for i in range(len(parts))):
            self._take(parts, specs, stream, 0)
        axes = {p["name"]: p["axis"] for p in self.plan["outputs"]}
        return {name: np.concatenate(found, axes[name]) for name, found in parts.items() if found}

    def _take(self, parts: Any, specs: Any, stream: P, turn: int) -> None:
        for i, port in enumerate(self.plan["outputs"]):
            ready = self.ready_of(stream, i)
            count = ready if turn % 3 == 0 or not self.room(stream) else ready // 2
            if not count:
                continue
            spec = specs[port["name"]]
            shape = [count if a == port["axis"] else n for a, n in enumerate(spec.shape)]
            rows = np.full(shape, 77, spec.dtype)
            assert self.pull_of(stream, i, rows.ctypes.data, count) == OK
            parts[port["name"]].append(rows)
