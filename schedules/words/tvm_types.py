"""What TVM's objects are called in signatures, a name each.

TVM carries no types that a checker reads, so that all of them are anything to it; were that to change, this is the one
place that says what is what.

    Expr           an expression of any dialect: numbers and indices of a kernel (or a plain number or a Dim in their
                   place, which TVM takes as well), TE's elements, values of Relax
    Buffer         memory that a kernel reads or writes: a variable of a buffer's type
    Stmt           a statement of a kernel
    Tensor         a stage of TE, or what it reads
    Operation      what makes a stage of TE, or stands for an input
    PrimFunc       a finished kernel
    IRModule       functions of Relax and kernels by their names
    Type           of a value of Relax
    Binding        of a variable of Relax to a value; Block: several, one after the other
    Attrs          what a call of Relax says beside its operands
    Attribute      what one of these is: a number, a text, or TVM's container of such; Attributes: those of a call of an
                   operator of our own, by name
    RuntimeTensor  an array that TVM's runtime holds
    Analyzer       proves facts about expressions
    Mutator        rewrites what it is called for within a tree
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule as IRModule
from tvm import relax, runtime, te, tirx
from tvm.ir import Attrs as Attrs
from tvm.ir import Expr as Expr
from tvm.ir import Type as Type
from tvm.relax import Binding as Binding
from tvm.sym import Analyzer as Analyzer
from tvm_ffi.structural import StructuralMutator

Buffer = tirx.Buffer
Stmt = tirx.Stmt
Tensor = te.Tensor
PrimFunc = tirx.PrimFunc
Operation = te.tensor.Operation
Block = relax.BindingBlock
RuntimeTensor = runtime.Tensor
Mutator = StructuralMutator
Attribute = Any
Attributes = dict[str, Any]
