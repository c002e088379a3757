"""A Program made ready to run: what the VM's loop reads.

Linking copies each function's code (a jump to a jump goes where that one goes), builds the list of registers that every
call starts from (empty ones, then the constants), and looks up the library functions that its instructions name. A
linked program is shared by all its processes and never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lyra.errors import BytecodeError
from lyra.vega.bytecode.opcodes import (
    OP_CALL,
    OP_CALL_PURE,
    OP_CLOSURE,
    OP_GLOBAL_GET,
    OP_GLOBAL_SET,
    OP_JUMP,
    OP_LIBRARY,
    OP_LOOP,
)
from lyra.vega.bytecode.program import Function, Handler, Instruction, Program
from lyra.vega.stdlib.natives import native

Trees = dict[int, Any]  # by function: the tree of a pure one


class Code:
    """One function as the loop wants it."""

    __slots__ = (
        "captures",
        "code",
        "constants",
        "function",
        "handlers",
        "index",
        "name",
        "parameters",
        "pure",
        "required",
        "template",
    )

    def __init__(self, index: int, function: Function) -> None:
        self.index = index
        self.name = function.name
        self.function = function
        self.code: list[Instruction] = _thread_jumps(function.code)
        self.handlers: list[Handler] = function.handlers
        self.parameters = len(function.parameters)
        self.required = function.required
        self.captures = function.captures
        self.pure: Any = None  # how generated code of a pure function is called; see `pure.switch`
        self.constants: list[Any] = list(function.constants)
        self.template: list[Any] = [None] * function.registers + function.constants[: function.pinned]
        for op, _, _, c in function.code:
            if op == OP_LIBRARY:
                name, count = function.constants[c]
                library_function = native(name)
                if library_function is None:
                    raise BytecodeError(f"the library has no function {name!r}", hint="compile the source again")
                self.constants[c] = (library_function, count)
            elif op == OP_CLOSURE:
                self.constants[c] = tuple(function.constants[c][1:])


def _thread_jumps(code: list[Instruction]) -> list[Instruction]:
    """Return the code with jumps to jumps led to their end: each instruction stays where it is."""
    return [
        code[a] if op == OP_JUMP and a < len(code) and code[a][0] in (OP_JUMP, OP_LOOP) else (op, a, b, c)
        for op, a, b, c in code
    ]


class LinkedProgram:
    """All functions of a program, with its hash, by which saved processes name it.

    A host may set two short cuts, which the machine tries before it hands out an effect. `post(target, message)`
    carries a message at once and says True, or False: then the effect is asked. `spawn(fiber, function, arguments,
    details)` starts a process and gives its value, or None. `older` are the hashes of programs whose saved processes
    continue with this one, which was fitted to them.
    """

    __slots__ = ("functions", "hash", "older", "post", "program", "spawn", "tier")

    def __init__(self, program: Program, content_hash: str) -> None:
        self.program = program
        self.hash = content_hash
        self.older: frozenset[str] = frozenset()
        self.post: Callable[[Any, Any], bool] | None = None
        self.spawn: Callable[[Any, Any, Any, Any], Any] | None = None
        self.functions = [Code(index, function) for index, function in enumerate(program.functions)]
        self.tier: Any = None  # the generated code of pure functions; see `link`

    def beside(self, post: Callable[[Any, Any], bool]) -> LinkedProgram:
        """This program for fibers that run in another thread: with a `post` of their own, no `spawn` and no tier."""
        linked = LinkedProgram.__new__(LinkedProgram)
        linked.program, linked.hash, linked.functions = self.program, self.hash, self.functions
        linked.older = self.older
        linked.post, linked.spawn, linked.tier = post, None, None
        return linked


def globals_reached(linked: LinkedProgram, function: int) -> list[int]:
    """Return the slots of the globals that a function, or one that it calls or makes, reads or sets."""
    slots: set[int] = set()
    seen: set[int] = set()
    todo = [function]
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        for op, a, b, _ in linked.functions[index].function.code:
            if op == OP_GLOBAL_GET:
                slots.add(b)
            elif op == OP_GLOBAL_SET:
                slots.add(a)
            elif op in (OP_CALL, OP_CALL_PURE, OP_CLOSURE):
                todo.append(b)
    return sorted(slots)


def link(program: Program, *, tier: Callable[[Trees], Any] | None = None, is_hashed: bool = True) -> LinkedProgram:
    """Link a program, which must be verified or fresh from the compiler.

    `tier` makes the generated code of pure functions (`pure.switch.PureTier`): quicker, but a call of one is a single
    step, whatever the fuel; a host that shares its time says in `tier.contended` when a call has to give way. A host
    that saves no process needs no hash of the program.
    """
    linked = LinkedProgram(program, _hash_of(program) if is_hashed else "")
    if tier is not None:
        _add_tier(linked, tier)
    return linked


def _hash_of(program: Program) -> str:
    from lyra.vega.bytecode.file import content_hash

    return content_hash(program)


def _add_tier(linked: LinkedProgram, tier: Callable[[Trees], Any]) -> None:
    """Calls of pure functions become CALL_PURE. A function is pure when it has a tree and calls pure ones only."""
    trees = {code.index: code.function.tree for code in linked.functions if code.function.tree is not None}
    grown = True
    while grown:
        unfit = [index for index, tree in trees.items() if any(called not in trees for called in tree[3])]
        for index in unfit:
            del trees[index]
        grown = bool(unfit)
    if not trees:
        return
    linked.tier = tier(trees)
    for index in trees:
        linked.functions[index].pure = linked.tier.entry(index)
    for code in linked.functions:
        if any(op == OP_CALL and b in trees for op, _, b, _ in code.code):
            code.code = [(OP_CALL_PURE if op == OP_CALL and b in trees else op, a, b, c) for op, a, b, c in code.code]
