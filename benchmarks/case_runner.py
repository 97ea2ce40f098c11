"""Runs many small tests, each in a process that may take too long or die, and makes tables of what became of them.

A suite is a module of this folder with ``load_cases()`` (name -> case), ``operators_of(case)`` and
``run_case(case, *arguments)`` (an :class:`CaseOutcome`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing as mp
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..targets.plain import JsonView

PASS, REFUSED, WRONG, CRASH = "pass", "refused", "WRONG", "CRASH"
#: The headings of SUPPORT.md, each written by a suite of its own.
PARTS = ("# Supported operators", "## ONNX's backend tests")


@dataclass(frozen=True)
class CaseOutcome:
    """What became of one test; ``detail`` is the reason, the largest error, or the failure."""

    name: str
    operators: tuple[str, ...]
    verdict: str
    detail: str = ""
    seconds: float = 0.0


def _serve(connection: Any, suite: str, arguments: tuple[object, ...]) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    module = importlib.import_module(f".{suite}", __package__)
    cases = module.load_cases()
    connection.send("ready")
    while (name := connection.recv()) is not None:
        connection.send(module.run_case(cases[name], *arguments))


class Worker:
    """A process that runs tests one by one, and is started anew when a test takes too long or brings it down."""

    def __init__(self, suite: str, arguments: tuple[object, ...]) -> None:
        self.suite, self.arguments = suite, arguments
        self._start()

    def _start(self) -> None:
        context = mp.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.suite, self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        if not self.connection.poll(120):
            raise RuntimeError("the test worker does not start")
        self.connection.recv()

    def run(self, name: str, operators: tuple[str, ...], timeout: float) -> CaseOutcome:
        self.connection.send(name)
        try:
            if self.connection.poll(timeout):
                return self.connection.recv()
            failure = f"took more than {timeout:.0f} s"
        except EOFError:
            failure = "the process died"
        self.process.kill()
        self.process.join()
        self._start()
        return CaseOutcome(name, operators, CRASH, failure, timeout)

    def stop(self) -> None:
        self.connection.send(None)
        self.process.join(10)


def run_all(
    suite: str,
    operators: Mapping[str, tuple[str, ...]],
    timeout: float,
    progress: Callable[[CaseOutcome], None] = lambda _o: None,
    arguments: tuple[object, ...] = (),
) -> list[CaseOutcome]:
    """The outcome of every test named in ``operators``."""
    worker = Worker(suite, arguments)
    outcomes = []
    for name, own in operators.items():
        outcomes.append(worker.run(name, own, timeout))
        progress(outcomes[-1])
    worker.stop()
    return outcomes


def write_part(path: Path, text: str) -> None:
    """Writes ``text``, which begins with one of the headings of ``PARTS``, in the place of that part of the file."""
    parts = {heading: "" for heading in PARTS}
    current = ""
    for line in path.read_text().splitlines() if path.exists() else ():
        current = line if line in parts else current
        if current:
            parts[current] += f"{line}\n"
    parts[text.splitlines()[0]] = text
    path.write_text("\n".join(f"{part.rstrip()}\n" for part in parts.values() if part))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every suite has."""
    parser.add_argument("--only", default="", help="run tests whose name contains this")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th test from the I-th on, I from 0")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a test may take")
    parser.add_argument("--table", type=Path, help="the file that has the table as a part")
    parser.add_argument("--json", type=Path, help="where to write all outcomes")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="run nothing: outcomes of earlier parts")


def run_parts(
    suite: str,
    load_cases: Callable[[], JsonView],
    table: Callable[[list[CaseOutcome]], str],
    options: argparse.Namespace,
    arguments: tuple[object, ...] = (),
) -> int:
    """What ``add_options`` asks for; the exit code is 1 where a test gave a wrong answer or crashed."""
    cases = load_cases()
    if options.merge:
        return _merge(options.merge, cases, table, options.table)
    operators_of = importlib.import_module(f".{suite}", __package__).operators_of
    part, parts = map(int, options.part.split("/"))
    names = [n for n in sorted(cases) if options.only in n][part::parts]
    done: Counter[str] = Counter()

    def progress(outcome: CaseOutcome) -> None:
        done[outcome.verdict] += 1
        if outcome.verdict in (WRONG, CRASH):
            print(f"{outcome.verdict} {outcome.name}: {outcome.detail}", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(f"\r{sum(done.values())}/{len(names)} {dict(done)} ", end="", file=sys.stderr, flush=True)

    outcomes = run_all(suite, {n: operators_of(cases[n]) for n in names}, options.timeout, progress, arguments)
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    return _told(outcomes, table, options.table)


def _merge(
    parts: Iterable[Path], cases: JsonView, table: Callable[[list[CaseOutcome]], str], target: Path | None
) -> int:
    """The table of parts that ran side by side; they must hold every test once."""
    told = [o for p in parts for o in json.loads(p.read_text())]
    outcomes = [CaseOutcome(**{**o, "operators": tuple(o["operators"])}) for o in told]
    names = sorted(o.name for o in outcomes)
    if names != sorted(cases):
        print(f"the parts hold {len(names)} outcomes, not each of the {len(cases)} tests once", file=sys.stderr)
        return 2
    return _told(sorted(outcomes, key=lambda o: o.name), table, target)


def _told(outcomes: list[CaseOutcome], table: Callable[[list[CaseOutcome]], str], target: Path | None) -> int:
    if target:
        write_part(target, table(outcomes))
    done = Counter(o.verdict for o in outcomes)
    print(json.dumps(dict(done)))
    return 1 if done[WRONG] or done[CRASH] else 0
