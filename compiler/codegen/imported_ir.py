"""LLVM functions of ours beside a kernel's, for what TVM has no statement for."""

from __future__ import annotations

import tvm
from tvm import tirx

from ...schedules.words.tvm_types import Stmt

PRAGMA = "pragma_import_llvm"


def importing(body: Stmt, text: str) -> Stmt:
    """The lowered ``body`` with the functions of ``text`` at hand. TVM takes one such text of a function, so that they
    are joined; around all of the body, it would hide where the function returns from what comes after."""
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    first = statements[0]
    if isinstance(first, tirx.AttrStmt) and first.attr_key == PRAGMA:
        text, statements = f"{first.value.value}\n{text}", statements[1:]
    nothing = tirx.Evaluate(tirx.IntImm("int32", 0))
    return tirx.SeqStmt([tirx.AttrStmt("default", PRAGMA, tvm.ir.StringImm(text), nothing), *statements])
