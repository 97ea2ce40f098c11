"""The C compiler that links a library: found, named and run. Any failure is one ToolchainError.

For this machine a system compiler is preferred (cc, gcc, clang); for another one a cross gcc of that name, and in both
cases the ``ziglang`` package serves where there is none. Nothing is read from the environment but the search path: a
compiler of the user's choice comes in as an argument.
"""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolchainError
from ...targets.target import Target

_GLIBC = "2.28"  # the oldest that current distributions for boards still ship
_TIMEOUT_SECONDS = 900
_COMMON = ("-std=c11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-ident")
_LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,--as-needed", "-Wl,-z,relro", "-Wl,-z,now",
         "-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,--build-id=none", "-Wl,-s")  # fmt: skip


@dataclass(frozen=True)
class Toolchain:
    """A C compiler driver: ``command`` starts it, ``family`` (gcc, clang, zig) says which options it knows."""

    command: tuple[str, ...]
    family: str
    machine: str

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """Options for C sources that go into a library.

        Thread-local storage uses descriptors: the plain model would add the dynamic linker to the library's needs,
        and the static one would limit how many libraries a process can load.
        """
        if self.machine == "x86_64" and self.family in ("gcc", "zig"):
            return (*_COMMON, "-mtls-dialect=gnu2")
        if self.machine == "aarch64":
            return _COMMON
        return (*_COMMON, "-ftls-model=initial-exec")

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Options that make a library of objects: everything bound at load, nothing unresolved, nothing to trace."""
        # zig refuses an option that only states its default.
        return _LINK if self.family == "zig" else (*_LINK, "-Wl,-z,text")

    def run(self, arguments: Sequence[str], directory: Path, what: str) -> None:
        """Runs the compiler in ``directory``; raises ToolchainError with its last lines when it fails."""
        try:
            done = subprocess.run(
                [*self.command, *arguments], cwd=directory, capture_output=True, text=True, errors="replace",
                stdin=subprocess.DEVNULL, timeout=_TIMEOUT_SECONDS,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"can't start the C compiler {self}: {error.strerror}; {_ADVICE}") from error
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(f"{self} took more than {_TIMEOUT_SECONDS} s while {what}") from error
        if done.returncode != 0:
            raise ToolchainError(f"{self} failed while {what}: {_last_lines(done.stderr or done.stdout)}")

    def __str__(self) -> str:
        return shlex.join(self.command)


_ADVICE = "install gcc or clang, or `pip install ziglang`, or name a compiler"


def find_toolchain(target: Target, cc: str | None = None) -> Toolchain:
    """The compiler for ``target``; ``cc`` is the user's choice, a command with options (``"clang --sysroot=..."``).

    Raises ToolchainError when there is none, and says what to install.
    """
    machine = machine_of(target.triple)
    if cc:
        command = shlex.split(cc)
        if not command or shutil.which(command[0]) is None:
            raise ToolchainError(f"the C compiler {cc!r} was not found; {_ADVICE}")
        return Toolchain(tuple(command), _family(command), machine)
    for candidate in _system_compilers(target.triple, machine):
        path = shutil.which(candidate)
        if path:
            return Toolchain((path,), _family([path]), machine)
    if importlib.util.find_spec("ziglang") is not None:
        # A random hash seed, user site or start-up file of the caller has no say in what the linker does.
        command = [sys.executable, "-m", "ziglang", "cc", "-target", zig_target(target.triple)]
        return Toolchain(tuple(command), "zig", machine)
    wanted = "C compiler" if is_host(target.triple) else f"C compiler for {target.triple}"
    raise ToolchainError(f"no {wanted} found; {_ADVICE}")


def machine_of(triple: str) -> str:
    """The processor family of a triple: x86_64, aarch64, arm, i386, riscv64, or its first part as it is."""
    first = triple.split("-")[0].lower()
    if first in ("amd64", "x86-64", "x86_64"):
        return "x86_64"
    if first in ("arm64", "aarch64"):
        return "aarch64"
    if first.startswith(("armv", "arm", "thumbv")):
        return "arm"
    if first in ("i386", "i486", "i586", "i686"):
        return "i386"
    return first


def is_host(triple: str) -> bool:
    """Whether code for ``triple`` runs on this machine."""
    return machine_of(triple) == machine_of(platform.machine()) and "linux" in triple


def zig_target(triple: str) -> str:
    """zig's name for a triple: ``aarch64-unknown-linux-gnu`` -> ``aarch64-linux-gnu.2.28``."""
    machine = {"i386": "x86"}.get(machine_of(triple), machine_of(triple))
    abi = triple.split("-")[-1]
    if "linux" in abi or abi == "unknown":
        abi = "gnu"
    if machine == "arm" and abi == "gnu":
        abi = "gnueabihf"
    return f"{machine}-linux-{abi}.{_GLIBC}" if abi.startswith("gnu") else f"{machine}-linux-{abi}"


def _system_compilers(triple: str, machine: str) -> tuple[str, ...]:
    if is_host(triple):
        return ("cc", "gcc", "clang")
    abi = triple.split("-")[-1]
    if machine == "arm" and abi in ("gnu", "linux", "unknown"):
        abi = "gnueabihf"
    return (f"{machine}-linux-{abi if abi != 'linux' else 'gnu'}-gcc",)


def _family(command: Sequence[str]) -> str:
    if any("zig" in part for part in command):
        return "zig"
    try:
        text = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"can't start the C compiler {shlex.join(command)}; {_ADVICE}") from error
    return "clang" if "clang" in text.lower() else "gcc"


def _last_lines(text: str, count: int = 3) -> str:
    """The end of a compiler's output on one line; the lines that name an error where there are any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "undefined" in line.lower()]
    return " | ".join((errors or lines)[-count:]) or "it said nothing"
