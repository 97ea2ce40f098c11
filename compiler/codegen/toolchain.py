"""The C compiler that links a library: found, named and run. Any failure is one ToolchainError.

For this machine a system compiler is preferred (cc, gcc, clang) and the ``ziglang`` package serves where there is none.
For another machine it is the other way round: zig knows every glibc version, so that a library can be made for the
oldest that a board has, while a cross gcc knows only its own. Nothing is read from the environment but the search
path, and where zig would keep what it compiles: a compiler of the user's choice comes in as an argument.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...errors import ToolchainError
from ...targets.target import Target

_ELSEWHERE = {
    "wasm32-unknown-unknown": "wasm32-wasi",  # for its C library, of which nothing is taken that asks a system
    "x86_64-windows-gnu": "x86_64-windows-gnu",
    "aarch64-macos": "aarch64-macos.11.0",
}
_GLIBC = "2.28"  # for targets that name none: the oldest that current distributions for boards still ship
_TIMEOUT_SECONDS = 900
MACHINES = ("x86_64", "aarch64", "arm", "i386", "riscv64")
_COMMON = ("-std=c11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-ident")
_LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,--as-needed", "-Wl,-z,relro", "-Wl,-z,now",
         "-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,--build-id=none", "-Wl,-s")  # fmt: skip
_NO_BLOCK_LOADS = ("-mllvm", "-arm-load-store-opt=false")  # targets/target.py says what is wrong with them
_STATIC = ("-static", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-s")

# zig, told of no optimisation as it links, builds its undefined-behaviour sanitizer's library first: that is most of a
# triple's first link, and nothing of it is linked.
_NO_SANITIZER = "-fno-sanitize=undefined"


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
        return (*_COMMON, *self._sound, "-ftls-model=initial-exec")

    @property
    def program_flags(self) -> tuple[str, ...]:
        """Options for C sources of a static program."""
        return (*_COMMON, *self._sound, "-ffunction-sections", "-fdata-sections")

    @property
    def _sound(self) -> tuple[str, ...]:
        """Leaves out the pass of LLVM whose code is wrong on 32-bit ARM, as the kernels do."""
        return _NO_BLOCK_LOADS if self.machine == "arm" and self.family in ("clang", "zig") else ()

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Options that make a library of objects: everything bound at load, nothing unresolved, nothing to trace."""
        # zig refuses an option that only states its default.
        return (*_LINK, _NO_SANITIZER) if self.family == "zig" else (*_LINK, "-Wl,-z,text")

    @property
    def static_flags(self) -> tuple[str, ...]:
        """Options that make a program that needs no library and no dynamic linker."""
        return (*_STATIC, _NO_SANITIZER) if self.family == "zig" else _STATIC

    def run(self, arguments: Sequence[str], directory: Path, what: str) -> None:
        """Runs the compiler in ``directory``; raises ToolchainError with its last lines when it fails."""
        try:
            done = subprocess.run(
                [*self.command, *arguments], cwd=directory, capture_output=True, text=True, errors="replace",
                stdin=subprocess.DEVNULL, timeout=_TIMEOUT_SECONDS,
                env=_zig_environment(directory) if self.family == "zig" else None,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"can't start the C compiler {self}: {error.strerror}; {_ADVICE}") from error
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(f"{self} took more than {_TIMEOUT_SECONDS} s while {what}") from error
        if done.returncode != 0:
            raise ToolchainError(f"{self} failed while {what}: {_last_lines(done.stderr or done.stdout)}")

    def version(self) -> str:
        """What the compiler calls itself, on one line; it decides the bytes that come out."""
        if self.family == "zig" and "ziglang" in self.command:
            from importlib.metadata import version  # it takes as long to load as all else here

            return f"zig {version('ziglang')}"
        return _version_text(self.command).partition("\n")[0].strip()

    def identity(self) -> str:
        """What decides the objects that come out, besides sources and options: the command, its file, what it calls
        itself, and where its environment lets it look for headers."""
        path = shutil.which(self.command[0]) or ""
        status = os.stat(path) if path else None
        file = (os.path.realpath(path), status.st_size, status.st_mtime_ns) if status else ()
        looks = [os.environ.get(name) for name in ("CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")]
        return repr((self.command, file, self.version(), looks))

    def __str__(self) -> str:
        return shlex.join(self.command)


def _zig_environment(directory: Path) -> dict[str, str] | None:
    """zig keeps libraries that it compiled in the user's cache; where there is none, they last for one build.

    None where the environment will do as it is.
    """
    home = os.environ.get("HOME", "")
    cache = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    if "ZIG_GLOBAL_CACHE_DIR" in os.environ:
        return None
    if cache:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.join(cache, "zig"), exist_ok=True)
            if os.access(os.path.join(cache, "zig"), os.W_OK | os.X_OK):
                return None
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(directory.absolute() / "zig-cache")}


_ADVICE = "install gcc or clang, or `pip install ziglang`, or name a compiler"
_CROSS_ADVICE = "`pip install ziglang` brings one for every target; --cc names another"


def find_toolchain(target: Target, cc: str | None = None) -> Toolchain:
    """The compiler for ``target``; ``cc`` is the user's choice, a command with options (``"clang --sysroot=..."``).

    Raises ToolchainError when there is none, and says what to install.
    """
    machine = machine_of(target.triple)
    if cc:
        return _chosen(cc, machine)
    zig = zig_toolchain(target.triple, target.glibc)
    here = is_host(target.triple)
    own_libc = here and not target.glibc
    found = _system_toolchain(target.triple, machine) if own_libc or zig is None else None
    if found or zig:
        return found or zig  # type: ignore[return-value]
    if here:
        raise ToolchainError(f"no C compiler found; {_ADVICE}")
    raise ToolchainError(f"no C compiler for {target.triple} found; {_CROSS_ADVICE}")


def find_static_toolchain(target: Target, cc: str | None = None) -> Toolchain | None:
    """The compiler that links static programs for ``target``: with a static libc, or zig with musl; or None."""
    machine = machine_of(target.triple)
    if cc:
        return _chosen(cc, machine)
    zig = zig_toolchain(musl(target.triple))
    if zig is not None and not is_host(target.triple):
        return zig
    found = _system_toolchain(target.triple, machine)
    return found if found and has_static_libc(found) else zig


def zig_toolchain(triple: str, glibc: str = "") -> Toolchain | None:
    """zig's compiler for a triple, or None where the ziglang package is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-m", "ziglang", "cc", "-target", zig_target(triple, glibc))
    return Toolchain(command, "zig", machine_of(triple))


def has_static_libc(toolchain: Toolchain) -> bool:
    """Whether the compiler finds a libc.a; distributions keep it in a package of its own."""
    done = subprocess.run([*toolchain.command, "-print-file-name=libc.a"], capture_output=True, text=True)
    return "/" in done.stdout


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


def musl(triple: str) -> str:
    """The triple of the same machine with the musl C library: ``armv7l-linux-gnueabihf`` ->
    ``armv7l-linux-musleabihf``."""
    *front, abi = triple.split("-")
    if "musl" in abi:
        return triple
    if "gnu" in abi:
        return "-".join([*front, abi.replace("gnu", "musl")])
    return "-".join([*front, abi, "musleabihf" if machine_of(triple) == "arm" else "musl"])


def zig_target(triple: str, glibc: str = "") -> str:
    """zig's name for a triple: ``aarch64-unknown-linux-gnu`` with 2.28 -> ``aarch64-linux-gnu.2.28``."""
    if triple in _ELSEWHERE:
        return _ELSEWHERE[triple]
    machine = {"i386": "x86"}.get(machine_of(triple), machine_of(triple))
    abi = triple.split("-")[-1]
    if "linux" in abi or abi == "unknown":
        abi = "gnu"
    if machine == "arm" and abi in ("gnu", "musl"):
        abi += "eabihf"
    if abi.startswith("gnu"):
        return f"{machine}-linux-{abi}.{glibc or _GLIBC}"
    return f"{machine}-linux-{abi}"


_OWN = ("cc", "gcc", "clang", "musl-gcc")
_KNOWN = re.compile(rf"(({'|'.join(MACHINES)})-linux-[a-z]+-)?({'|'.join(_OWN)})(-\d{{1,2}})?", re.ASCII)


def is_known_name(cc: str) -> bool:
    """Whether ``cc`` is no more than the name of a compiler that we would look for ourselves, in some version: no path,
    no option."""
    return _KNOWN.fullmatch(cc) is not None


def _chosen(cc: str, machine: str) -> Toolchain:
    try:
        command = shlex.split(cc)
    except ValueError as error:
        raise ToolchainError(f"the C compiler {cc!r} can't be read as a command: {str(error).lower()}") from None
    if not command or shutil.which(command[0]) is None:
        raise ToolchainError(f"the C compiler {cc!r} was not found; {_ADVICE}")
    return Toolchain(tuple(command), _family(command), machine)


def _system_toolchain(triple: str, machine: str) -> Toolchain | None:
    for candidate in _system_compilers(triple, machine):
        path = shutil.which(candidate)
        if path:
            return Toolchain((path,), _family([path]), machine)
    return None


def _system_compilers(triple: str, machine: str) -> tuple[str, ...]:
    abi = triple.split("-")[-1]
    if is_host(triple):
        return ("musl-gcc",) if "musl" in abi else ("cc", "gcc", "clang")
    if machine not in MACHINES:
        return ()
    if machine == "arm" and abi in ("gnu", "linux", "unknown"):
        abi = "gnueabihf"
    return (f"{machine}-linux-{abi if abi != 'linux' else 'gnu'}-gcc",)


def _family(command: Sequence[str]) -> str:
    if any("zig" in part for part in command):
        return "zig"
    return "clang" if "clang" in _version_text(command).lower() else "gcc"


def _version_text(command: Sequence[str]) -> str:
    """What the compiler tells of itself; each is asked once, and again when its file has changed."""
    path = shutil.which(command[0])
    return _told_version(tuple(command), path, os.stat(path).st_mtime_ns if path else 0)


@lru_cache(maxsize=64)
def _told_version(command: tuple[str, ...], path: str | None, changed: int) -> str:
    try:
        return subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"can't start the C compiler {shlex.join(command)}; {_ADVICE}") from error


def _last_lines(text: str, count: int = 3) -> str:
    """The end of a compiler's output on one line; the lines that name an error where there are any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if any(word in line.lower() for word in ("error", "undefined", "failed"))]
    return " | ".join((errors or lines)[-count:]) or "it said nothing"
