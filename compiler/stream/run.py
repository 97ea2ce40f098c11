"""A whole image through a stream: from a source to a target, with memory that does not depend on its height."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError, several
from ..guard import carried
from .bands import ReadBands, WriteBands
from .columns import StreamStrip
from .datasets import Raster, as_array
from .journal import Journal
from .machine import Stream
from .paths import created, is_path, opened, suffix_of
from .pieces import Pieces
from .views import View
from .words import Port, StreamPlan

if TYPE_CHECKING:
    from ..given import ArraysGiven
    from ..runtime.loader import LoadedModel

Progress = Callable[[int, int], None]


def stream_image(
    loaded: LoadedModel,
    plan: StreamPlan,
    source: ArraysGiven,
    target: ArraysGiven = None,
    *,
    threads: int | None = None,
    layout: str | None = None,
    scale: float = 1.0,
    target_scale: float = 1.0,
    source_type: str | None = None,
    target_type: str | None = None,
    progress: Progress | None = None,
    journal: bool | str | os.PathLike[str] | None = None,
    journal_seconds: float = 10.0,
) -> ArraysGiven:
    """Computes the outputs for ``source`` into ``target``, which is what is returned (:meth:`..model.Model.stream`)."""
    run = _StreamRun(loaded, plan, threads, layout, scale, target_scale, carried(progress))
    run.source_type, run.target_type = source_type, target_type
    return run.all(source, target, journal, journal_seconds)


class _StreamRun:
    def __init__(
        self, loaded: LoadedModel, plan: StreamPlan, threads: int | None, layout: str | None, scale: float,
        target_scale: float, progress: Callable[..., None] | None,
    ) -> None:  # fmt: skip
        self.loaded, self.plan, self.threads, self.layout = loaded, plan, threads, layout
        self.scale, self.target_scale, self.progress = scale, target_scale, progress
        specs = (*loaded.inputs, *loaded.outputs)
        self.specs = {s.name: s if plan.columns is None else plan.columns.whole(s) for s in specs}
        strips = (None,) if plan.columns is None else plan.columns.strips
        self.turns = [(level, strip) for strip in strips for level in range(plan.passes)]  # how often rows are read
        self.written = {p.name: 0 for p in plan.outputs}
        self.source_type: str | None = None
        self.target_type: str | None = None
        self.files: list[ArraysGiven] = []
        self.pieces = Pieces(threads or loaded.threads)

    def all(
        self,
        source: ArraysGiven,
        target: ArraysGiven,
        journal: bool | str | os.PathLike[str] | None,
        seconds: float,
    ) -> ArraysGiven:
        names = [p.name for p in self.plan.inputs]
        given = dict(source) if isinstance(source, Mapping) else {names[0]: source}
        streamed = {name: given.pop(name) for name in names if name in given}
        missing = [name for name in names if name not in streamed]
        if missing:
            raise RunError(f"input '{missing[0]}' is missing: the network takes rows of {', '.join(names)}")
        try:
            if len(names) == 1 and _is_iterator(streamed[names[0]]):
                if self.plan.columns is not None:
                    raise RunError(self.plan.columns.refusal("rows of an iterator come once"))
                if self.plan.statistics:
                    raise RunError(
                        f"the network needs all rows, in {self.plan.passes} passes, and rows of an iterator can't be "
                        "read again: give an array or a file"
                    )
                if journal:
                    raise RunError("a journal needs a source that can be read again, and rows of an iterator can't be")
                return self._iterated(streamed[names[0]], target, given)
            return self._read(streamed, target, given, journal, seconds)
        finally:
            self.pieces.close()
            for file in self.files:
                if hasattr(file, "close"):
                    file.close()

    def _view(self, port: Port, array: ArraysGiven, scale: float, layout: str | None) -> View:
        spec = self.specs[port.name]
        array = as_array(array)
        array = array if hasattr(array, "shape") and hasattr(array, "dtype") else np.asarray(array)
        return View(port.name, array, spec.shape, port.axis, np.dtype(spec.dtype), layout, scale, self.pieces)

    def _source(self, port: Port, array: ArraysGiven) -> View:
        if is_path(array):
            spec = self.specs[port.name]
            array = opened(array, port.name, spec.shape, port.axis, self.source_type or spec.dtype)
            self.files.append(array)
        view = self._view(port, array, self.scale, self.layout)
        return view if self.plan.columns is not None else view.banded(ReadBands)

    def _target(
        self,
        port: Port,
        array: ArraysGiven,
        shape: tuple[int, ...],
        journal: bool | str | os.PathLike[str] | None,
    ) -> View:
        """Where an output goes: an array, or a file, which is made in a layout of its own."""
        layout = self.layout
        if is_path(array):
            kind = np.dtype(self.target_type or self.specs[port.name].dtype)
            again = bool(journal) and Path(array).exists() and _beside(journal, array).exists()
            most = None if self.plan.columns is None else self.plan.columns.placed(port.name)
            array, layout = created(array, port.name, shape, port.axis, kind, most, again=again), None
            self.files.append(array)
        view = self._view(port, array, self.target_scale, layout)
        return view if self.plan.columns is not None else view.banded(WriteBands)

    # ------------------------------------------------------------------ arrays

    def _read(
        self,
        sources: Mapping[str, ArraysGiven],
        target: ArraysGiven,
        still: Mapping[str, ArraysGiven],
        journal: bool | str | os.PathLike[str] | None,
        seconds: float,
    ) -> ArraysGiven:
        views = {p.name: self._source(p, sources[p.name]) for p in self.plan.inputs}
        rows = self._height(views)
        read = {os.path.realpath(s) for s in sources.values() if is_path(s)}
        for place in self._named(target).values():
            if is_path(place) and os.path.realpath(place) in read:
                raise RunError(f"{place} is read to the end, and can't be written: give the target another name")
        targets, kept = self._targets(target, rows, journal)
        book = self._journal(journal, seconds, target, views, targets, still)
        before = book.read() if book is not None and kept else None
        numbers: dict[str, np.ndarray] = {}
        for turn in range(0 if before is None else int(before["level"]), len(self.turns)):
            level, strip = self.turns[turn]
            seen, made, given = (views, targets, still) if strip is None else self._cut(strip, views, targets, still)
            stream = Stream(self.loaded, self.plan, given, self.threads)
            stream.gather(level)
            stream.use(numbers)
            if before is not None:
                stream.go_on(before)
            self._pass(stream, seen, made, rows, turn, book, 0 if before is None else int(before["step"]))
            before = None
            numbers = {**stream.used(), **stream.gathered()}
            if strip is not None:
                _flush(made, bands_only=True)
        still_ones = stream.still() if self.plan.still else {}
        _flush(targets, bands_only=book is None)
        if book is not None:
            book.remove()
        return self._result(target, targets, still_ones)

    def _cut(
        self, strip: StreamStrip, views: Mapping[str, View], targets: Mapping[str, View], still: Mapping[str, Any]
    ) -> tuple[dict[str, View], dict[str, View], dict[str, Any]]:
        """Sources, targets and inputs that do not stream, of a strip's columns."""
        assert self.plan.columns is not None
        axes = self.plan.columns.axes

        def cut(name: str, array: Any) -> Any:
            return array if name not in axes else array[(slice(None),) * axes[name] + (slice(*strip.crops[name]),)]

        seen = {n: v.columns(axes[n], *strip.crops[n]).banded(ReadBands) for n, v in views.items()}
        made = {n: v.columns(axes[n], *strip.placed[n]).banded(WriteBands) for n, v in targets.items()}
        return seen, made, {n: cut(n, np.asarray(a)) for n, a in still.items()}

    def _pass(
        self, stream: Stream, views: Mapping[str, View], targets: Mapping[str, View], rows: int, turn: int,
        book: Journal | None, step: int,
    ) -> None:  # fmt: skip
        """All rows once, from ``step`` on."""
        level, strip = self.turns[turn]
        if level == self.plan.giving:
            for port in self.plan.outputs:
                self.written[port.name] = max(0, step * port.count - port.delay)
        stream.sink = lambda port, made: self._take_rows(targets[port.name], port, made, strip)
        while step * self.plan.rows < rows:
            left = {p.name: min(p.count, views[p.name].rows - step * p.count) for p in self.plan.inputs}
            stream.together(left)
            part = left[self.plan.inputs[0].name]
            for port, own in stream.next_rows(part):
                views[port.name].read_into(step * port.count, own)
            stream.came(part)
            step += 1
            if book is not None and step * self.plan.rows <= rows:
                book.write(lambda: {"level": np.array(turn), **stream.kept()}, lambda: _flush(targets))
            if self.progress is not None:
                done = turn * rows + min(step * self.plan.rows, rows)
                self.progress(done, len(self.turns) * rows)
        stream.finish()

    def _height(self, views: Mapping[str, View]) -> int:
        first = self.plan.inputs[0]
        given = views[first.name].rows
        rows = given * first.height.period // first.height.steps
        while first.height.at(rows) < given:
            rows += 1
        if refusal := self.plan.refusal(rows):
            raise RunError(refusal)
        for port in self.plan.inputs:
            if views[port.name].rows != port.height.at(rows):
                raise RunError(
                    f"input '{port.name}' has {several(views[port.name].rows, 'row')}, "
                    f"and {port.height.at(rows)} belong to an "
                    f"image of {rows}"
                )
        return rows

    def _targets(
        self, target: ArraysGiven, rows: int, journal: bool | str | os.PathLike[str] | None
    ) -> tuple[dict[str, View], bool]:
        """Where every output goes, and whether what is there may be a part of it."""
        ports, given = self.plan.outputs, self._named(target)
        found, kept = {}, target is not None
        for name in self.plan.still:
            if is_path(given.get(name)) and suffix_of(given[name]) != ".npy":
                raise RunError(f"output '{name}' has no rows: give the path of a .npy file")
        for port in ports:
            spec, array = self.specs[port.name], given.get(port.name)
            shape = tuple(port.height.at(rows) if a == port.axis else n for a, n in enumerate(spec.shape))
            if array is None:
                array, kept = np.empty(shape, spec.dtype), False
            view = self._target(port, array, shape, journal)
            if view.rows != port.height.at(rows):
                has = several(port.height.at(rows), "row")
                raise RunError(f"output '{port.name}' has {has}, and its target {view.rows}")
            found[port.name] = view
        return found, kept

    def _named(self, target: ArraysGiven) -> Mapping[str, ArraysGiven]:
        """Targets by the names of outputs."""
        names = [*self.written, *self.plan.still]
        if target is not None and not isinstance(target, Mapping):
            if len(names) > 1:
                raise RunError(f"the network has several outputs: give targets by name, for {', '.join(names)}")
            return {names[0]: target}
        unknown = [name for name in target or () if name not in names]
        if unknown:
            raise RunError(f"the network has no output '{unknown[0]}'; its outputs are {', '.join(names)}")
        return target or {}

    def _journal(
        self, journal: bool | str | os.PathLike[str] | None, seconds: float, target: ArraysGiven,
        views: Mapping[str, View], targets: Mapping[str, View],
        still: Mapping[str, ArraysGiven],
    ) -> Journal | None:  # fmt: skip
        if not journal:
            return None
        if any(isinstance(v.array, Raster) for v in targets.values()):
            raise RunError("rows of a rasterio dataset wait in memory, unseen by a journal: give the path of a .tif")
        recorded = self.loaded.recorded
        about = {
            "library": None if recorded is None else recorded.sha256,
            "sources": {n: [tuple(v.array.shape), str(v.array.dtype), v.layout] for n, v in views.items()},
            "targets": {n: [tuple(v.array.shape), str(v.array.dtype), v.layout] for n, v in targets.items()},
            "scale": [self.scale, self.target_scale],
            "still": {n: np.asarray(a).tolist() for n, a in still.items()},
        }
        one = next(iter(target.values())) if isinstance(target, Mapping) and target else target
        return Journal(_beside(journal, one), about, seconds)

    def _take_rows(self, target: View, port: Port, rows: np.ndarray, strip: StreamStrip | None) -> None:
        if strip is not None and self.plan.columns is not None:
            axis = self.plan.columns.axes[port.name]
            rows = rows[(slice(None),) * axis + (slice(*strip.taken[port.name]),)]
        target.write(self.written[port.name], rows)
        self.written[port.name] += rows.shape[port.axis]

    def _result(self, target: ArraysGiven, targets: Mapping[str, View], still: Mapping[str, np.ndarray]) -> ArraysGiven:
        given = self._named(target)
        for name, array in still.items():
            place = given.get(name)
            if place is not None and is_path(place):
                with open(place, "wb") as file:
                    np.save(file, array)
            elif place is not None:
                place[...] = array
        if target is not None and not isinstance(target, Mapping):
            return target
        arrays = {**{name: view.array for name, view in targets.items()}, **still}
        return next(iter(arrays.values())) if target is None and len(arrays) == 1 else {**arrays, **(target or {})}

    # ------------------------------------------------------------------ iterators

    def _iterated(
        self, source: Iterable[ArraysGiven], target: ArraysGiven, still: Mapping[str, ArraysGiven]
    ) -> ArraysGiven:
        port = self.plan.inputs[0]
        stream = Stream(self.loaded, self.plan, still, self.threads)
        parts: dict[str, list[np.ndarray]] = {p.name: [] for p in self.plan.outputs}
        given = target if isinstance(target, Mapping) else {self.plan.outputs[0].name: target}
        files = [a for a in given.values() if is_path(a)]
        if files:
            raise RunError(f"rows of an iterator end somewhere, so that {files[0]} can't be made: give a target array")
        wanted = [p for p in self.plan.outputs if given.get(p.name) is not None]
        views = {p.name: self._target(p, given[p.name], (), None) for p in wanted}
        done = 0
        for rows in source:
            view = self._view(port, rows, self.scale, self.layout)
            stream.push({port.name: view.read(0, view.rows)})
            done += view.rows
            self._take(stream, views, parts)
            if self.progress is not None:
                self.progress(done, done)
        stream.finish()
        self._take(stream, views, parts)
        _flush(views, bands_only=True)
        arrays = {p.name: np.concatenate(parts[p.name], p.axis) for p in self.plan.outputs if p.name not in views}
        if target is not None and not isinstance(target, Mapping):
            return target
        return next(iter(arrays.values())) if target is None and len(arrays) == 1 else {**arrays, **(target or {})}

    def _take(self, stream: Stream, views: Mapping[str, View], parts: Mapping[str, list[np.ndarray]]) -> None:
        for port in self.plan.outputs:
            count = stream.ready(port.name)
            if port.name not in views:
                parts[port.name].append(stream.pull(port.name))
            elif count:
                if self.written[port.name] + count > views[port.name].rows:
                    raise RunError(f"output '{port.name}' has more rows than the {views[port.name].rows} of its target")
                views[port.name].write(self.written[port.name], stream.pull(port.name))
                self.written[port.name] += count


def _is_iterator(source: Path | np.ndarray) -> bool:
    """Whether rows come one after the other: what has no shape, is no path, and can be iterated."""
    return not (hasattr(source, "shape") or is_path(source) or isinstance(source, (list, tuple))) and hasattr(
        source, "__iter__"
    )


def _flush(targets: Mapping[str, View], *, bands_only: bool = False) -> None:
    for view in targets.values():
        if bands_only and not isinstance(view.array, WriteBands):
            continue
        flush = getattr(view.array, "flush", None)
        if callable(flush):
            flush()


def _beside(journal: Any, target: ArraysGiven) -> Path:
    """The journal's file: as it is called, or beside a target that is a file."""
    if not isinstance(journal, bool):
        return Path(journal)
    name = target if is_path(target) else getattr(target, "filename", None)
    if name is None:
        raise RunError("the target is no file that a journal could lie beside: say where, journal='stream.journal'")
    return Path(f"{os.fspath(name)}.journal")
