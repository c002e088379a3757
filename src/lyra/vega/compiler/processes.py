"""Patterns, processes and agents to register code: match, receive, spawn, send, await, and agents' settings.

A match tries its arms one after the other; a pattern is a list of tests that jump to the next arm. A receive does the
same with one message after the other and takes the first that fits out of the mailbox. The settings of an agent or
supervisor become a function that gives them as a map, called when it is spawned, so that they may use constants,
variables and expressions; in them a name that means nothing else is a word (`strategy restart`).
"""

from __future__ import annotations

from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    OP_AWAIT,
    OP_CALL,
    OP_CELL_OF,
    OP_GLOBAL_SET,
    OP_INNER,
    OP_ITEM,
    OP_LIST,
    OP_LOOP,
    OP_MAP,
    OP_NO_MATCH,
    OP_RECEIVE,
    OP_RECEIVE_NEXT,
    OP_RECEIVE_TAKE,
    OP_SEND,
    OP_SEND_STREAM,
    OP_SEND_WITH,
    OP_SPAWN,
    OP_SPAWN_SUPERVISED,
    OP_UNLESS_EQ,
    OP_UNLESS_LIST,
    OP_UNLESS_VARIANT,
)
from lyra.vega.compiler.calls import Calls
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.syntax import ast

__all__ = ["SEND_BUDGET", "SEND_TIMEOUT", "Processes"]

# The flags of SEND: which of its optional registers are filled.
SEND_TIMEOUT: Final = 1
SEND_BUDGET: Final = 2

# Fields whose names are words even where a variable has the same name.
_WORD_FIELDS: Final = frozenset({"strategy", "on", "priority", "memory", "capabilities", "output", "backoff"})


class Processes(Calls):
    def block(self, block: ast.Block) -> None:
        raise NotImplementedError  # of Statements

    # ------------------------------------------------------------ patterns

    def pattern(self, node: ast.Pattern, value: int, misses: list[int]) -> None:
        """Test a value and bind its names; the jumps for a miss are added to `misses`."""
        self.at(node)
        if type(node) is ast.NamePattern:
            self.bind(node, value)
        elif type(node) is ast.LiteralPattern:
            literal = self.constant(node.value)
            misses.append(self.emit(OP_UNLESS_EQ, 0, value, literal))
        elif type(node) is ast.VariantPattern:
            misses.append(self.emit(OP_UNLESS_VARIANT, 0, value, int(node.variant == "Err")))
            self.part(node.inner, OP_INNER, value, 0, misses)
        elif type(node) is ast.ListPattern:
            misses.append(self.emit(OP_UNLESS_LIST, 0, value, len(node.items)))
            for index, item in enumerate(node.items):
                self.part(item, OP_ITEM, value, index, misses)

    def part_or_whole(self, node: ast.Pattern, value: int, misses: list[int]) -> None:
        """The pattern of an arm. A plain name that is never assigned is simply another name for the value."""
        variable = self.module.declared[id(node)] if type(node) is ast.NamePattern else None
        if variable is not None and not (variable.is_global or variable.is_cell or variable.is_assigned):
            variable.register = value
        else:
            self.pattern(node, value, misses)

    def part(self, node: ast.Pattern, op: int, value: int, index: int, misses: list[int]) -> None:
        """A pattern inside another: take the part out, then test it. A plain name needs no second register."""
        if type(node) is ast.Wildcard:
            return
        part = self.register()
        self.emit(op, part, value, index)
        variable = self.module.declared[id(node)] if type(node) is ast.NamePattern else None
        if variable is not None and not variable.is_global and not variable.is_cell:
            variable.register = part
        else:
            self.pattern(node, part, misses)

    def bind(self, node: ast.Node, value: int) -> None:
        """A new variable with that value, in a register, a cell or a global."""
        variable = self.module.declared[id(node)]
        if variable.is_global:
            self.emit(OP_GLOBAL_SET, self.linker.slot(variable), value)
            return
        variable.register = self.register()
        if variable.is_cell:
            self.emit(OP_CELL_OF, variable.register, value)
        else:
            self.move(variable.register, value)

    def arm_body(self, arm: ast.Arm, into: int | None) -> None:
        statements = arm.body.statements
        if into is None:
            self.block(arm.body)
        elif arm.is_value and len(statements) == 1 and type(statements[0]) is ast.ExpressionStatement:
            self.expression_in(statements[0].value, into)
        else:
            self.block(arm.body)
            self.constant(None, into)

    def match(self, node: ast.Match, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        result = self.register()
        self.match_arms(node, result)
        self.move(into, result)
        self.next_register = mark
        return into

    def match_arms(self, node: ast.Match, result: int | None) -> None:
        """`result` is None where nobody wants the value."""
        mark = self.next_register
        subject = self.register()
        self.expression_in(node.subject, subject)
        ends: list[int] = []
        for arm in node.arms:
            inner = self.next_register
            misses: list[int] = []
            self.part_or_whole(arm.pattern, subject, misses)
            self.arm_body(arm, result)
            ends.append(self.jump())
            self.patch_all(misses)
            self.next_register = inner
        self.at(node)
        self.emit(OP_NO_MATCH, subject)
        self.patch_all(ends)
        self.next_register = mark

    def receive(self, node: ast.Receive, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        result = self.register()
        self.receive_arms(node, result)
        self.move(into, result)
        self.next_register = mark
        return into

    def receive_arms(self, node: ast.Receive, result: int | None) -> None:
        mark = self.next_register
        message = self.register()
        state = self.register(3)
        if node.after is not None:
            self.expression_in(node.after, state + 1)
        self.at(node)
        self.emit(OP_RECEIVE, state, int(node.after is not None))
        again = self.emit(OP_RECEIVE_NEXT, state, message)
        self.patch(again)  # never taken without `after`
        ends: list[int] = []
        for arm in node.arms:
            inner = self.next_register
            misses: list[int] = []
            self.part_or_whole(arm.pattern, message, misses)
            self.emit(OP_RECEIVE_TAKE, state)
            self.arm_body(arm, result)
            ends.append(self.jump())
            self.patch_all(misses)
            self.next_register = inner
        self.emit(OP_LOOP, again)
        if node.after_body is not None:
            self.patch(again)
            self.arm_body(node.after_body, result)
        self.patch_all(ends)
        self.next_register = mark

    # ------------------------------------------------------------ messages

    def send(self, node: ast.Send, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        if node.timeout is None and node.budget is None and not node.is_stream:
            target = self.operand(node.target, node.message)
            message = self.expression(node.message)
            self.at(node)
            self.emit(OP_SEND, into, target, message)
        else:
            first = self.register(4)
            flags = self.send_parts(node, first)
            self.at(node)
            self.emit(OP_SEND_STREAM if node.is_stream else OP_SEND_WITH, into, first, flags)
        self.next_register = mark
        return into

    def send_parts(self, node: ast.Send, first: int) -> int:
        """Target, message, time-out and budget in four registers; gives the flags of those that are there."""
        self.expression_in(node.target, first)
        self.expression_in(node.message, first + 1)
        flags = 0
        if node.timeout is not None:
            self.expression_in(node.timeout, first + 2)
            flags |= SEND_TIMEOUT
        if node.budget is not None:
            self.expression_in(node.budget, first + 3)
            flags |= SEND_BUDGET
        return flags

    def await_(self, node: ast.Await, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        operand = self.expression(node.operand)
        self.at(node)
        self.emit(OP_AWAIT, into, operand)
        self.next_register = mark
        return into

    # ------------------------------------------------------------ starting processes

    def spawn(self, node: ast.Spawn, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        first = self.register(3)
        kind, name = self.spawned(node, node.target, first, is_function=node.is_function)
        details = self.other(["spawn", kind, name, "async" if node.is_async else ""])
        if node.supervision is None:
            self.at(node)
            self.emit(OP_SPAWN, into, first, details)
        else:
            self.settings(node.supervision.settings, first + 2)
            self.at(node)
            self.emit(OP_SPAWN_SUPERVISED, into, first, details)
        self.next_register = mark
        return into

    def spawned(self, node: ast.Node, target: ast.Expression, first: int, *, is_function: bool) -> tuple[str, str]:
        """What is to be started in two registers: a function and its arguments, or an agent's settings and null."""
        meaning = self.module.meanings.get(id(target))
        if is_function or type(target) is ast.Call:
            if type(target) is not ast.Call:
                raise self.fail(node, "`spawn fn` needs a call", hint="write `spawn fn worker(x)`")
            return "function", self.spawned_function(target, first)
        if isinstance(meaning, Symbol) and meaning.kind in ("agent", "supervisor"):
            function = self.linker.configuration(meaning)
            self.at(node)
            self.emit(OP_CALL, first, function, first)
            self.constant(None, first + 1)
            return meaning.kind, meaning.key
        name = getattr(target, "name", "")
        raise self.fail(target, f"there is no agent `{name}`", hint="declare `agent NAME { … }`, or `spawn fn NAME(…)`")

    def spawned_function(self, call: ast.Call, first: int) -> str:
        self.expression_in(call.callee, first)
        meaning = self.module.meanings.get(id(call.callee))
        mark = self.next_register
        if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
            arguments = self.arguments(call, meaning.node.parameters, meaning.name)
            count = len(meaning.node.parameters)
        else:
            arguments = self.run_of([argument.value for argument in call.arguments])
            count = len(call.arguments)
        self.at(call)
        self.emit(OP_LIST, first + 1, arguments, count)
        self.next_register = mark
        return meaning.name if isinstance(meaning, (Symbol, Variable)) else "function"

    # ------------------------------------------------------------ settings

    def settings(self, fields: dict[str, Any], into: int) -> None:
        """A map of settings: each an expression, or a block of settings."""
        mark = self.next_register
        first = self.register(2 * len(fields))
        for index, (name, value) in enumerate(fields.items()):
            self.constant(name, first + 2 * index)
            inner = self.next_register
            if isinstance(value, dict):
                self.settings(value, first + 2 * index + 1)
            elif type(value) is ast.TypeLiteral:
                self.constant(self.source.text[value.at : value.end], first + 2 * index + 1)  # as it is written
            else:
                self.setting(value, first + 2 * index + 1, is_word=name in _WORD_FIELDS)
            self.next_register = inner
        self.emit(OP_MAP, into, first, 2 * len(fields))
        self.next_register = mark

    def setting(self, node: ast.Expression, into: int, *, is_word: bool) -> None:
        mark = self.next_register
        means = self.module.meanings.get(id(node))
        if type(node) is ast.Name and (is_word or means is None):
            self.constant(node.name, into)
        elif type(node) is ast.Path and means is None:
            self.constant(f"{node.module}::{node.name}", into)
        elif type(node) is ast.ListLiteral:
            first = self.register(len(node.items))
            for index, item in enumerate(node.items):
                self.setting(item, first + index, is_word=is_word)
            self.emit(OP_LIST, into, first, len(node.items))
        elif type(node) is ast.Call and self.module.meanings.get(id(node.callee)) is None:
            self.called_setting(node, into)
        else:
            self.expression(node, into)
        self.next_register = mark

    def called_setting(self, node: ast.Call, into: int) -> None:
        """`exponential(100ms, 2.0, 5s)` is a list: the word, then what it is given."""
        first = self.register(1 + len(node.arguments))
        self.constant(getattr(node.callee, "name", ""), first)
        for index, argument in enumerate(node.arguments):
            self.setting(argument.value, first + 1 + index, is_word=False)
        self.emit(OP_LIST, into, first, 1 + len(node.arguments))


Processes.rules = {
    **Calls.rules,
    ast.Match: Processes.match,
    ast.Receive: Processes.receive,
    ast.Send: Processes.send,
    ast.Await: Processes.await_,
    ast.Spawn: Processes.spawn,
}
