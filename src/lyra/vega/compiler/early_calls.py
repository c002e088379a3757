"""Calls ahead of their turn to register code.

A stretch whose calls overlap is compiled several times. First the passes that look ahead, one for each level: each
runs what of the stretch is needed to know the questions of that level, on copies of the variables, waits for answers of
lower levels where it needs them, and starts the calls. Then the stretch itself, statement by statement as always, in
which such a call takes the early answer. An error while looking ahead ends the looking; whatever it was, the program
comes to it in its turn. An error in the stretch gives up what was asked early and continues to its handler.

    PAR_BEGIN group           null: nothing is to be made ahead
    … passes: PAR_SPAWN "ahead", PAR_JOIN "look", "promise"     errors continue at the stretch
    PAR_JOIN "turn"           the look ahead is over
    … the stretch: PAR_JOIN "take", "spawn"                     errors give up the group first
    PAR_JOIN "end"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.vega.bytecode.opcodes import (
    OP_ADD_INT,
    OP_CALL,
    OP_IF,
    OP_ITERATE,
    OP_LIBRARY,
    OP_LIST,
    OP_LOOP,
    OP_MOVE,
    OP_NEXT,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_PRINT,
    OP_RETHROW,
    OP_UNLESS_LT,
    OP_UNLESS_NE,
)
from lyra.vega.compiler.calls import compile_arguments, compile_call, compile_symbol
from lyra.vega.compiler.control import compile_continue, compile_sequence, compile_statement, leave_function
from lyra.vega.compiler.emitter import FunctionCode, LoopExits
from lyra.vega.compiler.expressions import compile_into, compile_variable, jump_if, loop_while
from lyra.vega.compiler.statements import (
    compile_send,
    compile_send_parts,
    compile_spawn,
    compile_spawned,
    compile_spawned_function,
    is_print,
)
from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.plan.straight_line import Site, Stretch, stretches
from lyra.vega.plan.unroll import Slice, Unroller
from lyra.vega.syntax import ast

_TURNS_MAX: Final = 10_000  # turns of one loop that are looked ahead
_STATEMENTS_MAX: Final = 5_000  # of one block: a file of more is data, not a program that waits
_END: Final = ["parallel", "end", 0, 0, 0]
_TURN: Final = ["parallel", "turn", 0, 0, 0]
_RUN: Final = 5  # registers of a call: group, target, message, time-out, budget


# ------------------------------------------------------------ statements in a row


def compile_early_sequence(out: FunctionCode, statements: list[ast.Statement]) -> None:
    if out.is_hidden or out.group >= 0 or len(statements) > _STATEMENTS_MAX:
        compile_sequence(out, statements)
        return
    unroller = Unroller(out.linker.summaries, out.module, out.unit, out.linker.keep)
    statements = list(unroller.statements(statements))
    for part in stretches(statements, out.linker.summaries, out.module, lambda statement: _last_value(out, statement)):
        if isinstance(part, Stretch):
            out.linker.notes.stretch(part, out.name)
            _compile_stretch(out, part)
        else:
            compile_statement(out, part)


def _last_value(out: FunctionCode, statement: ast.Statement) -> ast.Expression | None:
    """Return the value that a print or return computes before it acts: calls in it may still overlap."""
    if isinstance(statement, ast.Return):
        return statement.value
    if isinstance(statement, ast.ExpressionStatement) and is_print(out, statement.value):
        arguments = statement.value.arguments  # type: ignore[attr-defined]
        return arguments[0].value if arguments else None
    return None


def _compile_stretch(out: FunctionCode, stretch: Stretch) -> None:
    if not stretch.overlaps:
        for statement in stretch.statements:
            compile_statement(out, statement)
        return
    group = out.register(_RUN)
    error = out.register()
    out.at(stretch.statements[0])
    out.emit(OP_PAR_BEGIN, group, 1)
    off = out.emit(OP_UNLESS_NE, 0, group, out.constant(None))
    out.group, out.sites = group, {id(site.node): site for site in stretch.early}
    out.spawns, out.stops = stretch.spawns, [off]
    _look_ahead(out, stretch, error)
    start = len(out.code)
    value = _compile_in_turn(out, stretch)
    out.emit(OP_PAR_JOIN, group + 1, group, out.other(_END))
    past = out.jump()
    out.handle(start, len(out.code), error, past)
    out.emit(OP_PAR_JOIN, group + 1, group, out.other(_END))
    out.emit(OP_RETHROW, error)
    out.patch(past)
    out.group, out.sites, out.spawns = -1, {}, {}
    if stretch.end is not None:
        _finish_stretch(out, stretch.statements[-1], value)


def _compile_in_turn(out: FunctionCode, stretch: Stretch) -> int:
    """Return the stretch itself; gives the register of what its last statement needs."""
    statements = stretch.statements if stretch.end is None else stretch.statements[:-1]
    for statement in statements:
        compile_statement(out, statement)
    if stretch.end is None:
        return -1
    value = out.register()
    out.at(stretch.statements[-1])
    compile_into(out, stretch.end, value)
    return value


def _finish_stretch(out: FunctionCode, statement: ast.Statement, value: int) -> None:
    out.at(statement)
    if isinstance(statement, ast.Return):
        leave_function(out, value, len(out.exits))
    else:
        out.at(statement.value)  # type: ignore[attr-defined]
        out.emit(OP_PRINT, value)


# ------------------------------------------------------------ looking ahead


def _look_ahead(out: FunctionCode, stretch: Stretch, error: int) -> None:
    start = len(out.code)
    mark = out.next_register
    for level in sorted({site.level for site in stretch.early}):
        out.level, out.copies = level, {}
        ahead = Slice(stretch, level)
        for variable in ahead.outer:
            copy = out.register()
            compile_variable(out, variable, copy)
            out.copies[id(variable)] = copy
        for statement in stretch.statements:
            _ahead_statement(out, statement, ahead)
    out.level, out.copies = 0, None
    out.next_register = mark
    out.patch_all(out.stops)
    out.handle(start, len(out.code), error)
    out.emit(OP_PAR_JOIN, out.group + 1, out.group, out.other(_TURN))


def _ahead_statement(out: FunctionCode, node: Any, ahead: Slice) -> None:
    """Compile the parts of a statement that the pass needs."""
    if not ahead.wants(node):
        return
    out.at(node)
    kind = type(node)
    if kind is ast.Let or kind is ast.Const or kind is ast.Assign:
        ahead_set(out, node, ahead)
    elif kind is ast.Block:
        for statement in node.statements:
            _ahead_statement(out, statement, ahead)
    elif kind is ast.If:
        _ahead_if(out, node, ahead)
    elif kind is ast.ForIn:
        _ahead_for_in(out, node, ahead)
    elif kind is ast.While or kind is ast.For:
        _ahead_loop(out, node, ahead)
    elif kind is ast.Continue:
        compile_continue(out, node)
    else:
        _ahead_ask(out, node, ahead)


def _ahead_ask(out: FunctionCode, node: Any, ahead: Slice) -> None:
    """Start the calls of a statement whose turn it is."""
    for site in ahead.find_started_calls(node):
        mark = out.next_register
        first = out.register(_RUN)
        out.emit(OP_MOVE, first, out.group)
        if isinstance(site.node, ast.Send):
            kind, flags = "ahead", compile_send_parts(out, site.node, first + 1)
        else:
            kind, flags = "ahead call", int(site.asks_once) | 2 * site.hands_back
            compile_spawned_function(out, site.node, first + 1)
            _globals_of(out, site.node, first + 3)
        out.at(site.node)
        out.emit(OP_PAR_SPAWN, first, out.other(["parallel", kind, flags, site.number, int(site.in_order)]))
        out.next_register = mark


def ahead_set(out: FunctionCode, node: Any, ahead: Slice) -> None:
    _ahead_ask(out, node, ahead)
    variable = ahead.sets(node)
    if variable is None:
        return
    assert out.copies is not None
    # Into a fresh register first: the value may read the copy that it replaces.
    value = out.register()
    if node.value is None:
        out.constant(None, value)
    else:
        compile_into(out, node.value, value)
    copy = out.copies.get(id(variable))
    if copy is None:
        out.copies[id(variable)] = value
    else:
        out.move(copy, value)


def _ahead_if(out: FunctionCode, node: ast.If, ahead: Slice) -> None:
    misses = jump_if(out, node.condition, wanted=False)
    _ahead_statement(out, node.then, ahead)
    if node.otherwise is None:
        out.patch_all(misses)
        return
    end = out.jump()
    out.patch_all(misses)
    _ahead_statement(out, node.otherwise, ahead)
    out.patch(end)


def _ahead_for_in(out: FunctionCode, node: ast.ForIn, ahead: Slice) -> None:
    assert out.copies is not None
    state = out.register(2)
    compile_into(out, node.source, state)
    kind = out.register()
    out.emit(OP_MOVE, kind, state)
    out.emit(OP_LIBRARY, kind, kind, out.other(["type", 1]))
    out.stops.append(out.emit(OP_UNLESS_NE, 0, kind, out.constant("stream")))  # reading one is an effect
    out.emit(OP_ITERATE, state, state)
    item = out.register()
    out.copies[id(out.module.declared[id(node)])] = item
    turns = _ahead_counter(out)
    entry = out.jump()
    start = len(out.code)
    loop = _ahead_turn(out, node.body, turns, ahead)
    out.patch_all(loop.continues)
    out.patch(entry)
    out.at(node.source)
    out.emit(OP_NEXT, state, item, start)


def _ahead_loop(out: FunctionCode, node: Any, ahead: Slice) -> None:
    if isinstance(node, ast.For) and node.start is not None:
        _ahead_statement(out, node.start, ahead)
    turns = _ahead_counter(out)
    entry = out.jump()
    start = len(out.code)
    loop = _ahead_turn(out, node.body, turns, ahead)
    out.patch_all(loop.continues)
    if isinstance(node, ast.For) and node.step is not None:
        _ahead_statement(out, node.step, ahead)
    out.patch(entry)
    if node.condition is None:
        out.emit(OP_LOOP, start)
    else:
        loop_while(out, node.condition, start)


def _ahead_counter(out: FunctionCode) -> int:
    counter = out.register()
    out.constant(0, counter)
    return counter


def _ahead_turn(out: FunctionCode, body: ast.Block, turns: int, ahead: Slice) -> LoopExits:
    """One turn of a loop; when there were very many, the looking ends."""
    out.emit(OP_ADD_INT, turns, turns, 1)
    out.stops.append(out.emit(OP_UNLESS_LT, 0, turns, out.constant(_TURNS_MAX)))
    loop = LoopExits()
    out.exits.append(loop)
    _ahead_statement(out, body, ahead)
    out.exits.pop()
    return loop


# ------------------------------------------------------------ variables and calls


def _compile_early_send(out: FunctionCode, node: ast.Send, into: int | None) -> int:
    site = out.sites.get(id(node)) if out.group >= 0 else None
    if site is None:
        return compile_send(out, node, into)
    into = out.target(into)
    mark = out.next_register
    if out.level:
        return _look_at_answer(out, site, into)
    first = out.register(_RUN)
    out.emit(OP_MOVE, first, out.group)
    flags = compile_send_parts(out, node, first + 1)
    out.at(node)
    out.emit(OP_PAR_JOIN, into, first, out.other(["parallel", "take", flags, site.number, 0]))
    out.next_register = mark
    return into


def _compile_early_spawn(out: FunctionCode, node: ast.Spawn, into: int | None) -> int:
    """In its turn a process is started; for code that looks ahead it is promised, so that it can be asked."""
    number = out.spawns.get(id(node)) if out.group >= 0 else None
    if number is None:
        return compile_spawn(out, node, into)
    into = out.target(into)
    mark = out.next_register
    first = out.register(_RUN)
    out.emit(OP_MOVE, first, out.group)
    _, name = compile_spawned(out, node, node.target, first + 1, is_function=False)
    out.constant(name, first + 2)
    out.at(node)
    kind = "promise" if out.level else "spawn"
    out.emit(OP_PAR_JOIN, into, first, out.other(["parallel", kind, 0, number, out.level]))
    out.next_register = mark
    return into


def _globals_of(out: FunctionCode, node: ast.Call, into: int) -> None:
    """Collect the slots of the globals that a function reads: what its process needs, whenever it is started."""
    meaning = out.module.meanings[id(node.callee)]
    assert isinstance(meaning, Symbol)
    reads = out.linker.summaries.function(meaning).reads
    slots = [out.linker.slot(variable) for variable in reads if variable.is_global]
    mark = out.next_register
    run = out.register(len(slots))
    for index, slot in enumerate(slots):
        out.constant(slot, run + index)
    out.emit(OP_LIST, into, run, len(slots))
    out.next_register = mark


def _look_at_answer(out: FunctionCode, site: Site, into: int) -> int:
    out.at(site.node)
    out.emit(OP_PAR_JOIN, into, out.group, out.other(["parallel", "look", 0, site.number, out.level]))
    return into


def _compile_early_call(out: FunctionCode, node: ast.Call, into: int | None) -> int:
    site = out.sites.get(id(node)) if out.group >= 0 else None
    if site is None:
        return compile_call(out, node, into)
    into = out.target(into)
    if out.level:
        return _look_at_answer(out, site, into)
    mark = out.next_register
    meaning = out.module.meanings[id(node.callee)]
    assert isinstance(meaning, Symbol)
    first = out.register(_RUN)
    out.emit(OP_MOVE, first, out.group)
    compile_symbol(out, node, meaning, first + 1)
    parameters = meaning.node.parameters
    arguments = compile_arguments(out, node, parameters, meaning.name)
    out.emit(OP_LIST, first + 2, arguments, len(parameters))
    _globals_of(out, node, first + 3)
    has = out.register()
    out.at(node)
    out.emit(OP_PAR_JOIN, has, first, out.other(["parallel", "has", 0, site.number, 0]))
    taken = out.emit(OP_IF, 0, has)
    out.emit(OP_CALL, first + 3, out.linker.function_of(meaning), arguments)
    out.patch(taken)
    out.move(into, first + 3)
    out.next_register = mark
    return into


EARLY_CALLS: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Send: _compile_early_send,
    ast.Call: _compile_early_call,
    ast.Spawn: _compile_early_spawn,
}


# ---------------------------------------------------------------- overlap
# Which functions are worth running beside others: those that wait for an answer and touch nothing shared.
# In `parallel { }` a call of a declared function is its own process when the function may wait, and neither it nor
# what it calls receives messages or changes a global, a parameter or what these hold. A function under examination
# counts as free of effects, so that recursion ends.

# Methods and library functions that change the value they are given.
_CHANGING: Final = frozenset({"push", "pop", "insert", "remove", "set", "add"})
_WAITING_PATHS: Final = frozenset({("process", "sleep"), ("http", "get"), ("http", "post")})


class Overlap:
    def __init__(self) -> None:
        self.known: dict[int, tuple[bool, bool]] = {}  # id(function node) → (waits, is tied to its process)

    def may_overlap(self, symbol: Symbol) -> bool:
        if symbol.kind not in ("function", "tool"):
            return False
        waits, is_tied = self.waits_and_ties(symbol)
        return waits and not is_tied

    def waits_and_ties(self, symbol: Symbol) -> tuple[bool, bool]:
        key = id(symbol.node)
        if key not in self.known:
            self.known[key] = (False, False)
            self.known[key] = self.examine(symbol.node.body, symbol.module)
        return self.known[key]

    def examine(self, root: Any, module: ModuleScope) -> tuple[bool, bool]:
        waits = is_tied = False
        todo = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.Send, ast.Await)):
                waits = True
            elif isinstance(node, ast.Receive):
                is_tied = True
            elif isinstance(node, ast.Path):
                waits = waits or (node.module, node.name) in _WAITING_PATHS
                is_tied = is_tied or (node.module == "process" and node.name in ("self", "exit"))
            elif isinstance(node, ast.Name) and node.name == "exec":
                waits = True
            elif isinstance(node, (ast.Assign, ast.MethodCall, ast.Call)):
                is_tied = is_tied or _changes(node, module)
            callee = module.meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(callee, Symbol) and callee.kind in ("function", "tool"):
                inner = self.waits_and_ties(callee)
                waits, is_tied = waits or inner[0], is_tied or inner[1]
            todo.extend(_parts(node))
        return waits, is_tied


def _changes(node: ast.Assign | ast.MethodCall | ast.Call, module: ModuleScope) -> bool:
    """Return whether a node changes something that its function did not make itself."""
    changed: Any = None
    if isinstance(node, ast.Assign):
        changed = node.target
    elif isinstance(node, ast.MethodCall):
        changed = node.target if node.name in _CHANGING else None
    elif isinstance(node.callee, ast.Path) and node.callee.name in _CHANGING and node.arguments:
        changed = node.arguments[0].value
    is_part = not isinstance(node, ast.Assign)
    while isinstance(changed, (ast.Index, ast.Field)):
        changed, is_part = changed.target, True
    meaning = module.meanings.get(id(changed)) if changed is not None else None
    return isinstance(meaning, Variable) and (meaning.is_global or (is_part and meaning.is_parameter))


def _parts(node: Any) -> list[Any]:
    if isinstance(node, msgspec.Struct):
        return [getattr(node, field) for field in node.__struct_fields__ if field not in ("at", "end")]
    if isinstance(node, (list, tuple)):
        return list(node)
    if isinstance(node, dict):
        return list(node.values())
    return []
