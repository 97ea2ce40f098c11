"""A library from the cache, or built and kept there.

    made = library(model, options, output)       as run_pipeline, which is not asked where the same was built before

The key names all that the library depends on: the model's bytes and name, those of its external data, the options, the
target's facts, the C compiler, our code, the versions of TVM and the packages. Neither TVM nor onnx is loaded to find a
library. Of several processes that want one, one builds it and the others wait.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HalotileError, OutputError
from ..codegen.toolchain import find_static_toolchain, find_toolchain
from ..given import ModelGiven
from ..recipe import describe_options, digests, external_spans, model_digest
from ..runtime.digest import identity
from ..runtime.place import MANIFEST, read_manifest, staged
from ..runtime.recorded import Recorded
from ..state import Build, Options, Progress
from .digests import digest_of, note, unchanged
from .keys import key_of
from .origin import origin, plain_passes
from .prune import most_of_libraries, prune
from .store import Cache

if TYPE_CHECKING:
    from ...targets.plain import Json

FORM = "1"  # of a library's entry
log = logging.getLogger("halotile.cache")


@dataclass(frozen=True)
class Made:
    """A library in a folder: its manifest, the report of the build or, of one that was there, of that time's."""

    recorded: Recorded
    report: Json
    found: bool


def library(
    model: ModelGiven,
    options: Options,
    output: Path,
    progress: Progress | None = None,
    *,
    private: bool = False,
    begun: Build | None = None,
) -> Made:
    """Puts the library of ``model`` into ``output``. ``private``: nobody but us will ever write to the files there, so
    that they may be those of the cache. ``begun``: a build of the same that has come some way, which is gone on with
    where there is something to build.

    Raises what :func:`run_pipeline` does.
    """
    started = time.perf_counter()
    cache = options.cache
    key = key_of_library(model, options, cache) if cache is not None and _wanted(cache, options) else None
    if cache is None or key is None:
        made = _built(model, options, output, progress, begun)
        if cache is not None:
            prune(cache)
        return made
    if (found := _found(cache, key, output, started, private)) is not None:
        return found
    with cache.alone("libraries", key) as alone:
        found = _found(cache, key, output, started, private)
        if found is None:
            found = _built(model, options, output, progress, begun)
            if alone and plain_passes():
                _keep(cache, key, output, found.recorded, private)
    prune(cache)
    return found


def _wanted(cache: Cache, options: Options) -> bool:
    """Whether whole libraries are kept, and nothing is wanted of the stages but their result."""
    wanted = options.dump_ir is None and options.stop_after in (None, "link") and not options.check
    return cache.libraries and wanted and plain_passes()


def _built(
    model: ModelGiven, options: Options, output: Path, progress: Progress | None, begun: Build | None
) -> Made:
    from ..options import check_widening
    from ..pipeline import continued, run_pipeline

    for target in (options.target, *(options.levels or ())):
        check_widening(options.weights, target)
    if begun is None:
        report = run_pipeline(model, options, progress=progress, output=output).report
    else:
        report = continued(begun, options, progress, output).report
    recorded = read_manifest(output)
    assert recorded is not None
    return Made(recorded, report, False)


def key_of_library(model: ModelGiven, options: Options, cache: Cache) -> str | None:
    """None of a model that can't be read, or a compiler that is not there: the build says what is wrong."""
    try:
        compilers = [find_toolchain(options.target, options.cc).identity()]
        if "exe" in options.formats:
            static = find_static_toolchain(options.target, options.cc)
            compilers.append(static.identity() if static is not None else "")
        name, sha = model_digest(model, functools.partial(digest_of, cache=cache))
        external = _external(Path(os.fsdecode(os.fspath(model))), sha, cache) if name is not None else {}
        if external is None:
            return None
    except (HalotileError, OSError, ValueError, TypeError):
        return None
    asked = {**describe_options(options), "explain": options.explain, "open": options.open}
    facts = [asked, asdict(options.target), {"file": name, "sha256": sha, "external": external}]
    return key_of("library", FORM, origin(), *compilers, json.dumps(facts, sort_keys=True, default=str))


def _external(path: Path, sha: str, cache: Cache) -> dict[str, str] | None:
    """Digests of the files beside the model that hold its tensors; None where some can't be read. Where in them these
    lie is kept by the model's own digest, so that onnx need not be loaded."""
    key = key_of("external data", FORM, sha)
    kept = cache.get(key)
    if kept is not None:
        spans = {str(name): [(int(a), int(b)) for a, b in found] for name, found in json.loads(kept).items()}
    else:
        spans, whole = external_spans(path)
        if not whole:
            return None
        cache.put(key, json.dumps(spans).encode())
    return digests(path.parent, spans, lambda file, found: digest_of(file, cache, found))


def _found(cache: Cache, key: str, output: Path, started: float, private: bool) -> Made | None:
    """What is there under a key, copied and whole; None where nothing is, or something damaged, which then goes."""
    entry = cache.library(key)
    try:
        if not (entry / MANIFEST).is_file():
            return None
        before = {file.name: identity(file) for file in entry.iterdir()}
        recorded = read_manifest(entry)
        if recorded is None:
            raise OutputError("its manifest is not one of ours")
        for name in recorded.files:
            recorded.check(entry / name, functools.partial(digest_of, cache=cache, linked=True))
        with staged(output) as stage:
            _copy(entry, stage.result, link=private)
            if not all(unchanged(found, entry / name) for name, found in before.items()):
                raise OutputError("it was changed meanwhile")
        os.utime(entry)
    except (OutputError, OSError) as error:
        log.info("the cache's library %s is not used: %s", key, error)
        shutil.rmtree(entry, ignore_errors=True)
        return None
    log.info("found the library in the cache: %s", entry)
    seconds = {"cache": time.perf_counter() - started}
    return Made(recorded, {**recorded.everything.get("report", {}), "seconds": seconds}, True)


def _keep(cache: Cache, key: str, folder: Path, recorded: Recorded, private: bool) -> None:
    """Copies a library into the cache, whole or not at all; one that would push half of the others out is not kept."""
    try:
        if sum(file.stat().st_size for file in folder.iterdir()) > most_of_libraries(cache) // 2:
            return
        stage = Path(tempfile.mkdtemp(dir=cache.temporary()))
        try:
            _copy(folder, stage, link=private)
            if private:
                _as_old(stage, folder)
            entry = cache.library(key)
            entry.parent.mkdir(exist_ok=True)
            os.replace(stage, entry)
            for name, file in recorded.files.items() if private else ():
                note(entry / name, cache, file.sha256)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        log.info("the library is not kept in the cache: %s", error)


def _as_old(copies: Path, originals: Path) -> None:
    """Gives files the times of those that they are copies of, so that one has the digest that was taken of the other,
    and whatever is written to it from now on changes them."""
    for file in copies.iterdir():
        status = (originals / file.name).stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy(source: Path, destination: Path, link: bool) -> None:
    """All files of a folder; ``link``: as the same files, where both lie on one file system."""
    for file in source.iterdir():
        there = destination / file.name
        make: Callable[[Path, Path], object] = os.link if link else shutil.copy
        try:
            make(file, there)
        except OSError:
            if not link:
                raise
            shutil.copy(file, there)


