"""Calls ahead of their turn to register code.

A stretch whose calls overlap is compiled several times. First the passes that look ahead, one for each level: each
runs what of the stretch is needed to know the questions of that level, on copies of the variables, waits for answers of
lower levels where it needs them, and starts the calls. Then the stretch itself, statement by statement as always, in
which such a call takes the early answer. An error while looking ahead ends the looking; whatever it was, the program
comes to it in its turn. An error in the stretch gives up what was asked early and goes on to its handler.

    PAR_BEGIN group           null: nothing is to be made ahead
    … passes: PAR_SPAWN "ahead", PAR_JOIN "look", "promise"     errors go on at the stretch
    PAR_JOIN "turn"           the look ahead is over
    … the stretch: PAR_JOIN "take", "spawn"                     errors give up the group first
    PAR_JOIN "end"
"""

from __future__ import annotations

from typing import Any, Final

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
from lyra.vega.compiler.emitter import Loop
from lyra.vega.compiler.statements import Statements
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.plan.slices import Slice
from lyra.vega.plan.straight_line import Site, Stretch, stretches
from lyra.vega.plan.unroll import Unroller
from lyra.vega.syntax import ast

__all__ = ["Ahead"]

_TURNS_MAX: Final = 10_000  # turns of one loop that are looked ahead
_STATEMENTS_MAX: Final = 5_000  # of one block: a file of more is data, not a program that waits
_END: Final = ["parallel", "end", 0, 0, 0]
_TURN: Final = ["parallel", "turn", 0, 0, 0]
_RUN: Final = 5  # registers of a call: group, target, message, time-out, budget


class Ahead(Statements):
    _group = -1  # the register of the group of the stretch being compiled
    _sites: dict[int, Site]  # its early calls, by id(node)
    _spawns: dict[int, int]  # the numbers of its spawns, the same
    _pass = 0  # the level that is looked for; 0 in the stretch itself
    _copies: dict[int, int] | None = None  # id(Variable) → register, while looking ahead
    _stops: list[int]  # jumps that end the looking

    # ------------------------------------------------------------ statements in a row

    def sequence(self, statements: list[ast.Statement]) -> None:
        if self.is_hidden or self._group >= 0 or len(statements) > _STATEMENTS_MAX:
            super().sequence(statements)
            return
        unroller = Unroller(self.linker.summaries, self.module, self.unit, self.linker.keep)
        statements = list(unroller.statements(statements))
        for part in stretches(statements, self.linker.summaries, self.module, self.ending):
            if isinstance(part, Stretch):
                self.linker.notes.stretch(part, self.name)
                self.stretch(part)
            else:
                self.statement(part)

    def ending(self, statement: ast.Statement) -> ast.Expression | None:
        """The value that a print or return computes before it acts: calls in it may still overlap."""
        if isinstance(statement, ast.Return):
            return statement.value
        if isinstance(statement, ast.ExpressionStatement) and self.is_print(statement.value):
            arguments = statement.value.arguments  # type: ignore[attr-defined]
            return arguments[0].value if arguments else None
        return None

    def stretch(self, stretch: Stretch) -> None:
        if not stretch.overlaps:
            for statement in stretch.statements:
                self.statement(statement)
            return
        group = self.register(_RUN)
        error = self.register()
        self.at(stretch.statements[0])
        self.emit(OP_PAR_BEGIN, group, 1)
        off = self.emit(OP_UNLESS_NE, 0, group, self.constant(None))
        self._group, self._sites = group, {id(site.node): site for site in stretch.early}
        self._spawns, self._stops = stretch.spawns, [off]
        self.look_ahead(stretch, error)
        start = len(self.code)
        value = self.in_turn(stretch)
        self.end_group(group)
        past = self.jump()
        self.handle(start, len(self.code), error, past)
        self.emit(OP_PAR_JOIN, group + 1, group, self.other(_END))
        self.emit(OP_RETHROW, error)
        self.patch(past)
        self._group, self._sites, self._spawns = -1, {}, {}
        if stretch.end is not None:
            self.finish_end(stretch.statements[-1], value)

    def in_turn(self, stretch: Stretch) -> int:
        """The stretch itself; gives the register of what its last statement needs."""
        statements = stretch.statements if stretch.end is None else stretch.statements[:-1]
        for statement in statements:
            self.statement(statement)
        if stretch.end is None:
            return -1
        value = self.register()
        self.at(stretch.statements[-1])
        self.expression_in(stretch.end, value)
        return value

    def end_group(self, group: int) -> None:
        self.emit(OP_PAR_JOIN, group + 1, group, self.other(_END))

    def finish_end(self, statement: ast.Statement, value: int) -> None:
        self.at(statement)
        if isinstance(statement, ast.Return):
            self.leave_function(value, len(self.exits))
        else:
            self.at(statement.value)  # type: ignore[attr-defined]
            self.emit(OP_PRINT, value)

    # ------------------------------------------------------------ looking ahead

    def look_ahead(self, stretch: Stretch, error: int) -> None:
        start = len(self.code)
        mark = self.next_register
        for level in sorted({site.level for site in stretch.early}):
            self._pass, self._copies = level, {}
            ahead = Slice(stretch, level)
            for variable in ahead.outer:
                copy = self.register()
                super().variable(variable, copy)
                self._copies[id(variable)] = copy
            for statement in stretch.statements:
                self.ahead(statement, ahead)
        self._pass, self._copies = 0, None
        self.next_register = mark
        self.patch_all(self._stops)
        self.handle(start, len(self.code), error)
        self.emit(OP_PAR_JOIN, self._group + 1, self._group, self.other(_TURN))

    def ahead(self, node: Any, ahead: Slice) -> None:
        """What of a statement the pass needs."""
        if not ahead.wants(node):
            return
        self.at(node)
        kind = type(node)
        if kind is ast.Let or kind is ast.Const or kind is ast.Assign:
            self.ahead_set(node, ahead)
        elif kind is ast.Block:
            for statement in node.statements:
                self.ahead(statement, ahead)
        elif kind is ast.If:
            self.ahead_if(node, ahead)
        elif kind is ast.ForIn:
            self.ahead_for_in(node, ahead)
        elif kind is ast.While or kind is ast.For:
            self.ahead_loop(node, ahead)
        elif kind is ast.Continue:
            self.continue_(node)
        else:
            self.ask(node, ahead)

    def ask(self, node: Any, ahead: Slice) -> None:
        """Start the calls of a statement whose turn it is."""
        for site in ahead.asked(node):
            mark = self.next_register
            first = self.register(_RUN)
            self.emit(OP_MOVE, first, self._group)
            if isinstance(site.node, ast.Send):
                kind, flags = "ahead", self.send_parts(site.node, first + 1)
            else:
                kind, flags = "ahead call", int(site.asks_once) | 2 * site.hands_back
                self.spawned_function(site.node, first + 1)
                self.globals_of(site.node, first + 3)
            self.at(site.node)
            self.emit(OP_PAR_SPAWN, first, self.other(["parallel", kind, flags, site.number, int(site.in_order)]))
            self.next_register = mark

    def ahead_set(self, node: Any, ahead: Slice) -> None:
        self.ask(node, ahead)
        variable = ahead.sets(node)
        if variable is None:
            return
        assert self._copies is not None
        # Into a fresh register first: the value may read the copy that it replaces.
        value = self.register()
        if node.value is None:
            self.constant(None, value)
        else:
            self.expression_in(node.value, value)
        copy = self._copies.get(id(variable))
        if copy is None:
            self._copies[id(variable)] = value
        else:
            self.move(copy, value)

    def ahead_if(self, node: ast.If, ahead: Slice) -> None:
        misses = self.jump_false(node.condition)
        self.ahead(node.then, ahead)
        if node.otherwise is None:
            self.patch_all(misses)
            return
        end = self.jump()
        self.patch_all(misses)
        self.ahead(node.otherwise, ahead)
        self.patch(end)

    def ahead_for_in(self, node: ast.ForIn, ahead: Slice) -> None:
        assert self._copies is not None
        state = self.register(2)
        self.expression_in(node.source, state)
        kind = self.register()
        self.emit(OP_MOVE, kind, state)
        self.emit(OP_LIBRARY, kind, kind, self.other(["type", 1]))
        self._stops.append(self.emit(OP_UNLESS_NE, 0, kind, self.constant("stream")))  # reading one is an effect
        self.emit(OP_ITERATE, state, state)
        item = self.register()
        self._copies[id(self.module.declared[id(node)])] = item
        turns = self.turns()
        entry = self.jump()
        start = len(self.code)
        loop = self.turn(node.body, turns, ahead)
        self.patch_all(loop.continues)
        self.patch(entry)
        self.at(node.source)
        self.emit(OP_NEXT, state, item, start)

    def ahead_loop(self, node: Any, ahead: Slice) -> None:
        if isinstance(node, ast.For) and node.start is not None:
            self.ahead(node.start, ahead)
        turns = self.turns()
        entry = self.jump()
        start = len(self.code)
        loop = self.turn(node.body, turns, ahead)
        self.patch_all(loop.continues)
        if isinstance(node, ast.For) and node.step is not None:
            self.ahead(node.step, ahead)
        self.patch(entry)
        if node.condition is None:
            self.emit(OP_LOOP, start)
        else:
            self.loop_while(node.condition, start)

    def turns(self) -> int:
        counter = self.register()
        self.constant(0, counter)
        return counter

    def turn(self, body: ast.Block, turns: int, ahead: Slice) -> Loop:
        """One turn of a loop; when there were very many, the looking ends."""
        self.emit(OP_ADD_INT, turns, turns, 1)
        self._stops.append(self.emit(OP_UNLESS_LT, 0, turns, self.constant(_TURNS_MAX)))
        loop = Loop()
        self.exits.append(loop)
        self.ahead(body, ahead)
        self.exits.pop()
        return loop

    # ------------------------------------------------------------ variables and calls

    def variable(self, variable: Variable, into: int | None) -> int:
        copy = None if self._copies is None else self._copies.get(id(variable))
        if copy is None:
            return super().variable(variable, into)
        if into is None:
            return copy
        self.move(into, copy)
        return into

    def home(self, variable: Variable) -> int:
        copy = None if self._copies is None else self._copies.get(id(variable))
        return super().home(variable) if copy is None else copy

    def send(self, node: ast.Send, into: int | None) -> int:
        site = self._sites.get(id(node)) if self._group >= 0 else None
        if site is None:
            return super().send(node, into)
        into = self.target(into)
        mark = self.next_register
        if self._pass:
            return self.look(site, into)
        first = self.register(_RUN)
        self.emit(OP_MOVE, first, self._group)
        flags = self.send_parts(node, first + 1)
        self.at(node)
        self.emit(OP_PAR_JOIN, into, first, self.other(["parallel", "take", flags, site.number, 0]))
        self.next_register = mark
        return into

    def spawn(self, node: ast.Spawn, into: int | None) -> int:
        """In its turn a process is started; for code that looks ahead it is promised, so that it can be asked."""
        number = self._spawns.get(id(node)) if self._group >= 0 else None
        if number is None:
            return super().spawn(node, into)
        into = self.target(into)
        mark = self.next_register
        first = self.register(_RUN)
        self.emit(OP_MOVE, first, self._group)
        _, name = self.spawned(node, node.target, first + 1, is_function=False)
        self.constant(name, first + 2)
        self.at(node)
        kind = "promise" if self._pass else "spawn"
        self.emit(OP_PAR_JOIN, into, first, self.other(["parallel", kind, 0, number, self._pass]))
        self.next_register = mark
        return into

    def globals_of(self, node: ast.Call, into: int) -> None:
        """The slots of the globals that a function reads: what its process needs, whenever it is started."""
        meaning = self.module.meanings[id(node.callee)]
        assert isinstance(meaning, Symbol)
        reads = self.linker.summaries.function(meaning).reads
        slots = [self.linker.slot(variable) for variable in reads if variable.is_global]
        mark = self.next_register
        run = self.register(len(slots))
        for index, slot in enumerate(slots):
            self.constant(slot, run + index)
        self.emit(OP_LIST, into, run, len(slots))
        self.next_register = mark

    def look(self, site: Site, into: int) -> int:
        self.at(site.node)
        self.emit(OP_PAR_JOIN, into, self._group, self.other(["parallel", "look", 0, site.number, self._pass]))
        return into

    def call(self, node: ast.Call, into: int | None) -> int:
        site = self._sites.get(id(node)) if self._group >= 0 else None
        if site is None:
            return super().call(node, into)
        into = self.target(into)
        if self._pass:
            return self.look(site, into)
        mark = self.next_register
        meaning = self.module.meanings[id(node.callee)]
        assert isinstance(meaning, Symbol)
        first = self.register(_RUN)
        self.emit(OP_MOVE, first, self._group)
        self.symbol(node, meaning, first + 1)
        parameters = meaning.node.parameters
        arguments = self.arguments(node, parameters, meaning.name)
        self.emit(OP_LIST, first + 2, arguments, len(parameters))
        self.globals_of(node, first + 3)
        has = self.register()
        self.at(node)
        self.emit(OP_PAR_JOIN, has, first, self.other(["parallel", "has", 0, site.number, 0]))
        taken = self.emit(OP_IF, 0, has)
        self.emit(OP_CALL, first + 3, self.linker.function_of(meaning), arguments)
        self.patch(taken)
        self.move(into, first + 3)
        self.next_register = mark
        return into


Ahead.rules = {**Statements.rules, ast.Send: Ahead.send, ast.Call: Ahead.call, ast.Spawn: Ahead.spawn}
