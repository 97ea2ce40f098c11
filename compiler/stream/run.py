"""A whole image through a stream: from a source to a target, with memory that does not depend on its height."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.npyio import NpzFile

from ...errors import RunError, several
from ..guard import carried
from .abreast import opened_stream, streams_of
from .ahead import RowReader
from .bands import ReadBands, WriteBands
from .behind import RowWriter
from .columns import StreamStrip
from .datasets import Raster, as_array
from .files import PlainFile
from .journal import Journal
from .lanes import Lane, ahead_bytes, sources_of, step_bytes, targets_of, waiting_bytes
from .paths import created, is_path, opened, suffix_of
from .pieces import Pieces
from .rows import RowStream
from .views import View
from .words import Port, StreamPlan

if TYPE_CHECKING:
    from ..given import ArraysGiven
    from ..runtime.loader import LoadedModel

Progress = Callable[[int, int], None]
Strips = tuple[StreamStrip | None, ...]


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
        self.turns: list[tuple[int, Strips]] = []  # how often rows are read, by the strips that advance together
        self.written = {p.name: 0 for p in plan.outputs}
        self.source_type: str | None = None
        self.target_type: str | None = None
        self.files: list[ArraysGiven] = []
        self.pieces, self.writer, self.reader = Pieces(threads or loaded.threads), RowWriter(), RowReader()
        self.ahead, self.in_one = False, False  # rows of files are read ahead, and written, for all strips together

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
            self.writer.close()
            self.reader.close()
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
        """Where an output goes: an array, or a file, which is made in a layout of its own. Files of ours are written
        while the next rows are computed; what is given may be for one thread only."""
        layout, ours = self.layout, is_path(array) or isinstance(array, PlainFile)
        if is_path(array):
            kind = np.dtype(self.target_type or self.specs[port.name].dtype)
            again = bool(journal) and Path(array).exists() and _beside(journal, array).exists()
            most = None if self.plan.columns is None else self.plan.columns.placed(port.name)
            array, layout = created(array, port.name, shape, port.axis, kind, most, again=again), None
            self.files.append(array)
        view = self._view(port, array, self.target_scale, layout)
        view.behind = self.writer.behind() if ours else None
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
        groups = self._groups(views, targets)
        self.turns = [(level, group) for group in groups for level in range(self.plan.passes)]
        book = self._journal(journal, seconds, target, views, targets, still)
        before = book.read() if book is not None and kept else None
        numbers: list[dict[str, np.ndarray]] = []
        lanes: list[Lane] = []
        for turn in range(0 if before is None else int(before["turn"]), len(self.turns)):
            level, strips = self.turns[turn]
            lanes.clear()  # their memory is the next one's
            bands = self._lanes(lanes, strips, views, targets, still)
            _begin(lanes, level, numbers if level else [])
            step = 0 if before is None else _go_on(lanes, before)
            before = None

            def flush(waiting: Sequence[WriteBands] = bands) -> None:
                self.writer.done()
                for band in waiting:
                    band.flush()
                _flush(targets)

            self._pass(lanes, rows, turn, book, step, flush)
            numbers = [{**lane.stream.used(), **lane.stream.gathered()} for lane in lanes]
            self.writer.done()
            for band in bands:
                band.flush()
        still_ones = lanes[0].stream.still() if self.plan.still else {}
        _flush(targets, bands_only=book is None)
        if book is not None:
            book.remove()
        return self._result(target, targets, still_ones)

    def _groups(self, views: Mapping[str, View], targets: Mapping[str, View]) -> tuple[Strips, ...]:
        """The strips that take each step one behind the other."""
        if self.plan.columns is None:
            return ((None,),)
        waiting = waiting_bytes(self.plan, views, targets)
        groups = self.plan.columns.groups(waiting)

        def fits(more: int) -> bool:
            assert self.plan.columns is not None
            return len(self.plan.columns.groups(waiting + more)) == len(groups)

        ahead, step = ahead_bytes(self.plan, views), step_bytes(self.plan, targets)
        self.ahead = fits(ahead)
        self.in_one = fits(step + ahead * self.ahead)
        return groups

    def _lanes(
        self, lanes: list[Lane], strips: Strips, views: Mapping[str, View], targets: Mapping[str, View],
        still: Mapping[str, Any],
    ) -> list[WriteBands]:  # fmt: skip
        """Fills ``lanes`` with streams of these strips and their columns of the sources and targets. The result are
        bands of targets in which rows may wait."""
        streams = streams_of(self.loaded, self.plan, strips, still, self.threads)
        cut = [s for s in strips if s is not None]
        if not cut:
            lanes.append(Lane(streams[0], None, views, targets))
            return []
        made, bands = targets_of(self.plan, targets, cut, self.writer if self.in_one else None)
        seen = sources_of(self.plan, views, cut, self.reader if self.ahead else None)
        lanes += [Lane(*lane) for lane in zip(streams, cut, seen, made)]
        return bands

    def _pass(
        self, lanes: Sequence[Lane], rows: int, turn: int, book: Journal | None, step: int, flush: Callable[[], None]
    ) -> None:
        """All rows once, from ``step`` on."""
        for lane in lanes:
            lane.goes_on(self.plan, step)
        first, one = self.plan.inputs[0], lanes[0]
        while step * self.plan.rows < rows:
            left = {p.name: min(p.count, one.seen[p.name].rows - step * p.count) for p in self.plan.inputs}
            one.stream.together(left)
            for lane in lanes:
                for port, own in lane.stream.next_rows(left[first.name]):
                    lane.seen[port.name].read_into(step * port.count, own)
                if not lane.stream.came(left[first.name]):  # the last rows, which the next lane has no room beside
                    lane.stream.end()
                    if lane.stream.owes:
                        lane.stream.advance()
            step += 1
            if book is not None and step * self.plan.rows <= rows:
                book.write(lambda: _kept(turn, lanes), flush)
            if self.progress is not None:
                done = turn * rows + min(step * self.plan.rows, rows)
                self.progress(done, len(self.turns) * rows)
        for lane in lanes:
            if not lane.stream.finished:
                lane.stream.end()
        while one.stream.owes:
            for lane in lanes:
                lane.stream.advance()
        for lane in lanes:
            lane.stream.sink = None

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
            "strips": [len(strips) for _, strips in self.turns],
            "still": {n: np.asarray(a).tolist() for n, a in still.items()},
        }
        one = next(iter(target.values())) if isinstance(target, Mapping) and target else target
        return Journal(_beside(journal, one), about, seconds)

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
        stream = opened_stream(self.loaded, self.plan, still, self.threads, "rows of an iterator come once")
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

    def _take(self, stream: RowStream, views: Mapping[str, View], parts: Mapping[str, list[np.ndarray]]) -> None:
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


def _kept(turn: int, lanes: Sequence[Lane]) -> dict[str, np.ndarray]:
    """What a journal has of a turn: the lanes' own, under their numbers."""
    kept = {f"{i}|{name}": a for i, lane in enumerate(lanes) for name, a in lane.stream.kept().items()}
    return {"turn": np.array(turn), **kept}


def _begin(lanes: Sequence[Lane], level: int, numbers: Sequence[Mapping[str, np.ndarray]]) -> None:
    """The pass of a level, with what the one before has found."""
    for i, lane in enumerate(lanes):
        lane.stream.gather(level)
        lane.stream.use(numbers[i] if numbers else {})


def _go_on(lanes: Sequence[Lane], kept: NpzFile) -> int:
    """The step with which lanes go on from a journal, whose arrays are read one by one."""
    with kept:
        for i, lane in enumerate(lanes):
            lane.stream.go_on(lambda name, own=i: kept[f"{own}|{name}"])  # type: ignore[misc]
        return int(kept["0|step"])


def _beside(journal: Any, target: ArraysGiven) -> Path:
    """The journal's file: as it is called, or beside a target that is a file."""
    if not isinstance(journal, bool):
        return Path(journal)
    name = target if is_path(target) else getattr(target, "filename", None)
    if name is None:
        raise RunError("the target is no file that a journal could lie beside: say where, journal='stream.journal'")
    return Path(f"{os.fspath(name)}.journal")
