"""Pure functions (without effects and without changes that their caller sees) as generated Python and machine code.

    kinds      which kinds its variables have, given the kinds of its arguments
    generate   the Python of one function for one row of kinds
    native     which of them are about numbers alone, and their machine code where llvmlite is installed (`llvm`)
    switch     when a call goes which way

`compiler.pure_trees` says what of a function's source can be so, as plain data beside its register code;
`bytecode.pure_shapes` says what such a tree may look like, and checks one that comes in a file.

The generated code has to be right only where it succeeds. On anything else (an overflow, a wrong kind, an index
outside, recursion too deep, the turn of another process) it gives up, and the machine makes the same call again
instruction by instruction: a pure call may be made twice, and the machine knows the exact error and its place.
"""

from __future__ import annotations

from lyra.vega.machine.fiber import MISS

__all__ = ["MISS", "GiveUp"]


class GiveUp(Exception):
    """The machine has to make this call: raised inside."""
