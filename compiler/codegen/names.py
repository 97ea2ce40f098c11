"""Names and strings of generated C: identifiers, literals and comments that no model name can break."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAIN = "halotile_kernel_main"
SHAPES = "halotile_kernel_shapes"

# Prefixes with which <prefix>_create, _destroy, _run, or of streams _open and _close, is a function of libc.
_TAKEN = re.compile(r"(pthread|posix|sem|mq|shm|timer|timerfd|memfd|thrd|mtx|cnd|tss|epoll|svc|clnt)(_|$)")
_OURS = re.compile(r"halotile(_|$)", re.I)  # functions of the runtime, and in capitals its error codes
# Prefixes with which <PREFIX>_OK is something of libc's: unistd.h (as 0, X_OK would ask access() for another thing),
# fmtmsg.h, thread_db.h.
_CODES = ("F", "R", "W", "X", "MM", "TD")
# lib<name>.so beside a program would be taken for the system's by -l<name>
_LIBRARIES = "anl atomic c crypt dl g gcc gcc_s m nsl pthread resolv rt util stdc"
# <name>.h beside a program would be taken for the system's by #include <name.h>
_HEADERS = """
    aio alloca argp argz assert byteswap complex cpio crypt ctype dirent dlfcn elf endian envz err errno error execinfo
    fcntl features fenv float fmtmsg fnmatch fstab fts ftw getopt glob grp gshadow iconv ieee754 ifaddrs inttypes iso646
    langinfo lastlog libgen libintl limits link locale malloc math mcheck memory mntent monetary mqueue netdb nl_types
    nss obstack paths poll printf pty pwd re_comp regex regexp resolv sched search semaphore setjmp sgtty shadow signal
    spawn stab stdalign stdarg stdatomic stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings
    stropts syscall sysexits syslog tar termio termios tgmath threads time ttyent uchar ucontext ulimit unistd utime
    utmp utmpx values varargs wait wchar wctype wordexp
"""
_SYSTEM = frozenset((_LIBRARIES + _HEADERS).split())
# What can't name a member of a struct: keywords of C and C++, and macros of headers in wide use
_WORDS = frozenset(
    """
    alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    co_await co_return co_yield compl complex concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum errno explicit export extern false float for friend goto if
    imaginary inline int linux long mutable namespace new noexcept noreturn not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast stderr stdin stdout struct switch template this thread_local throw true try typedef
    typeid typename typeof typeof_unqual union unix unsigned using virtual void volatile wchar_t while xor xor_eq
    BUFSIZ EOF I NAN NULL INFINITY RAND_MAX major minor makedev signals slots emit min max near far small interface
    """.split()
)
_LONGEST = 100  # file names have an end


def identifier(name: str) -> str:
    """A C identifier for a model's name: ``my-model.v2`` -> ``my_model_v2``, ``3d`` -> ``model_3d``."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST].strip("_")
    if not text:
        return "model"
    taken = _TAKEN.match(text) or _OURS.match(text) or text.upper() in _CODES or text in _SYSTEM
    return f"model_{text}" if text[0].isdigit() or taken else text


def members(names: Sequence[str]) -> tuple[str, ...]:
    """Members of a struct for open dimensions, all different whatever their case (their constants are in capitals):
    ``batch size`` -> ``batch_size``, ``3`` -> ``size_3``, a second ``N`` -> ``n_2``."""
    found: list[str] = []
    for name in names:
        text = re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST].strip("_") or "size"
        if text[0].isdigit() or text in _WORDS:
            text = f"size_{text}"
        taken, stem, number = {member.upper() for member in found}, text, 2
        while text.upper() in taken:
            text, number = f"{stem}_{number}", number + 1
        found.append(text)
    return tuple(found)


def literal(text: str) -> str:
    """A C89 string literal of the UTF-8 bytes; octal escapes keep trigraphs and foreign letters out of the source."""
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def comment(text: str) -> str:
    """``text`` made fit for the inside of a comment: printable ASCII that neither opens nor closes one."""
    clean = re.sub(r"[^\x20-\x7e]|[\\?]", "_", text)
    return clean.replace("/*", "/ *").replace("*/", "* /")
