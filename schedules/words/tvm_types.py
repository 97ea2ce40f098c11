"""What TVM's objects are called in signatures, a name each.

TVM carries no types that a checker reads, so that all of them are anything to it; were that to change, this is the one
place that says what is what.

    Expr      an expression of any dialect: numbers and indices of a kernel (or a plain number in their place), TE's
              elements, values of Relax
    Buffer    memory that a kernel reads or writes: a variable of a buffer's type
    Stmt      a statement of a kernel
    Tensor    a stage of TE, or what it reads
    PrimFunc  a finished kernel
    IRModule  functions of Relax and kernels by their names
"""

from __future__ import annotations

from tvm import IRModule as IRModule
from tvm import te, tirx
from tvm.ir import Expr as Expr

Buffer = tirx.Buffer
Stmt = tirx.Stmt
Tensor = te.Tensor
PrimFunc = tirx.PrimFunc
