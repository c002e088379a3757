"""Statements to register code: blocks, loops, errors, `finally`, `defer`, sessions, `parallel`.

A loop tests at its end, so that a turn costs one jump. `finally`, `defer` and `session` share one shape (see
`emitter.Finally`): the code that must run is emitted once, and whoever leaves passes through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.vega import ast
from lyra.vega.compiler_processes import Processes
from lyra.vega.emitter import Finally, Loop
from lyra.vega.opcodes import (
    OP_BUDGET_ENTER,
    OP_BUDGET_EXIT,
    OP_CALL,
    OP_CALL_VALUE,
    OP_CELL,
    OP_CELL_OF,
    OP_CELL_SET,
    OP_EFFECT,
    OP_ERROR_TEXT,
    OP_GLOBAL_SET,
    OP_IF,
    OP_ITEM,
    OP_ITERATE,
    OP_LENGTH,
    OP_LIBRARY,
    OP_LOOP,
    OP_NEXT,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_PRINT,
    OP_PUSH,
    OP_RETHROW,
    OP_RETURN,
    OP_RETURN_NULL,
    OP_SET_FIELD,
    OP_STORE,
    OP_STREAM_CLOSE,
    OP_STREAM_DONE,
    OP_STREAM_NEXT,
    OP_THROW,
    OP_UNLESS_EQ,
    OP_UNLESS_ERROR,
    OP_UNLESS_LT,
)
from lyra.vega.scopes import Symbol, Variable

__all__ = ["Statements"]

# Expressions that read all they need before they write: their value may go straight into the variable assigned.
_DIRECT: Final = (ast.Binary, ast.Call, ast.Literal, ast.Index, ast.Name, ast.Field, ast.MethodCall, ast.Interpolation)


class Statements(Processes):
    statement_rules: dict[type, Callable[[Any, Any], None]]
    defers = -1  # the register of the list of deferred closures

    def statement(self, node: ast.Statement) -> None:
        self.at(node)
        self.statement_rules[type(node)](self, node)

    def block(self, block: ast.Block) -> None:
        mark = self.next_register
        self.enter(self.module.cells.get(id(block), []), block.statements)
        for statement in block.statements:
            self.statement(statement)
        self.next_register = mark

    def enter(self, variables: list[Variable], statements: list[ast.Statement]) -> None:
        """Make the shared variables of a scope, then its functions: they may be called before they stand."""
        for variable in variables:
            if variable.is_cell and not variable.is_global:
                variable.register = self.register()
                self.emit(OP_CELL, variable.register)
            elif variable.is_const and variable.literal is None and not variable.is_global:
                variable.register = self.register()
                self.constant(None, variable.register)
        for statement in statements:
            if type(statement) is ast.Function and id(statement) in self.module.declared:
                mark = self.next_register
                closure = self.register()
                self.closure(statement, statement.name, closure)
                self.next_register = mark
                self.set_new(statement, closure)

    # ------------------------------------------------------------ variables

    def set_new(self, node: ast.Node, value: int) -> None:
        """Give a variable that was just declared its first value."""
        variable = self.module.declared[id(node)]
        if variable.is_global or variable.is_cell:
            self.set_variable(variable, value)
        else:
            variable.register = self.register()
            self.move(variable.register, value)

    def set_variable(self, variable: Variable, value: int) -> None:
        if variable.is_global:
            self.emit(OP_GLOBAL_SET, self.linker.slot(variable), value)
        elif variable.is_cell:
            self.emit(OP_CELL_SET, self.home(variable), value)
        else:
            self.move(self.home(variable), value)

    def let(self, node: ast.Let | ast.Const) -> None:
        variable = self.module.declared[id(node)]
        if variable.literal is not None:
            return
        if variable.is_global or variable.is_cell:
            mark = self.next_register
            value = self.constant(None) if node.value is None else self.expression(node.value)
            self.at(node)
            self.set_variable(variable, value)
            self.next_register = mark
            return
        register = variable.register if variable.is_const else self.register()
        if node.value is None:
            self.constant(None, register)
        else:
            self.expression_in(node.value, register)
        variable.register = register

    def assign(self, node: ast.Assign) -> None:
        mark = self.next_register
        target = node.target
        if type(target) is ast.Index:
            whole = self.operand(target.target, node.value)
            index = self.operand(target.index, node.value)
            value = self.expression(node.value)
            self.at(target)
            self.emit(OP_STORE, whole, index, value)
        elif type(target) is ast.Field:
            whole = self.operand(target.target, node.value)
            value = self.expression(node.value)
            self.at(target)
            self.emit(OP_SET_FIELD, whole, self.other(target.name), value)
        else:
            meaning = self.module.meanings.get(id(target))
            if not isinstance(meaning, Variable):
                raise self.fail(target, "this cannot be assigned")
            self.assign_variable(meaning, node.value)
        self.next_register = mark

    def assign_variable(self, variable: Variable, value: ast.Expression) -> None:
        is_register = not variable.is_global and not variable.is_cell
        is_logical = type(value) is ast.Binary and value.operator in ("&&", "||")
        if is_register and isinstance(value, _DIRECT) and not is_logical:
            self.expression(value, self.home(variable))
        else:
            self.set_variable(variable, self.expression(value))

    # ------------------------------------------------------------ simple statements

    def expression_statement(self, node: ast.ExpressionStatement) -> None:
        mark = self.next_register
        call: Any = node.value
        if self.is_print(call):
            value = self.expression(call.arguments[0].value) if call.arguments else self.constant("")
            self.at(call)
            self.emit(OP_PRINT, value)
        elif isinstance(call, ast.Match):
            self.match_arms(call, None)
        elif isinstance(call, ast.Receive):
            self.receive_arms(call, None)
        else:
            self.expression(call)
        self.next_register = mark

    def is_print(self, node: Any) -> bool:
        return (
            type(node) is ast.Call
            and type(node.callee) is ast.Name
            and node.callee.name == "print"
            and id(node.callee) not in self.module.meanings
            and len(node.arguments) <= 1
            and not any(argument.name for argument in node.arguments)
        )

    def nothing(self, node: ast.Statement) -> None:
        """Declarations are made elsewhere."""

    def import_(self, node: ast.Import) -> None:
        symbol = self.module.symbols[node.name]
        if symbol.target is not None:
            unused = self.register()
            self.emit(OP_CALL, unused, symbol.target.init_function, unused)
            self.next_register = unused

    def mock(self, node: ast.Mock) -> None:
        """The host keeps scripted answers: the agent's name, then pairs of pattern and reply."""
        mark = self.next_register
        first = self.register(2)
        self.constant(node.agent, first)
        pairs = [
            ast.ListLiteral(items=[ast.Literal(value=reply.pattern), reply.reply], at=reply.at)
            for reply in node.replies
        ]
        self.expression_in(ast.ListLiteral(items=list(pairs), at=node.at), first + 1)
        self.at(node)
        self.emit(OP_EFFECT, first, first, self.other(["test::mock", 2]))
        self.next_register = mark

    # ------------------------------------------------------------ branches and loops

    def if_(self, node: ast.If) -> None:
        ends: list[int] = []
        branch: ast.Block | ast.If | None = node
        while type(branch) is ast.If:
            misses = self.jump_false(branch.condition)
            self.block(branch.then)
            if branch.otherwise is not None:
                ends.append(self.jump())
            self.patch_all(misses)
            branch = branch.otherwise
        if type(branch) is ast.Block:
            self.block(branch)
        self.patch_all(ends)

    def while_(self, node: ast.While) -> None:
        self.loop(node.condition, node.body, None)

    def for_(self, node: ast.For) -> None:
        mark = self.next_register
        self.enter(self.module.cells.get(id(node), []), [])
        if node.start is not None:
            self.statement(node.start)
        self.loop(node.condition, node.body, node.step)
        self.next_register = mark

    def loop(self, condition: ast.Expression | None, body: ast.Block, step: ast.Statement | None) -> None:
        loop = Loop()
        self.exits.append(loop)
        is_endless = condition is None or (type(condition) is ast.Literal and condition.value is True)
        entry = None if is_endless else self.jump()
        start = len(self.code)
        self.block(body)
        self.patch_all(loop.continues)
        if step is not None:
            self.statement(step)
        if entry is not None and condition is not None:
            self.patch(entry)
            self.loop_while(condition, start)
        else:
            self.emit(OP_LOOP, start)
        self.exits.pop()
        self.patch_all(loop.breaks)

    def for_in(self, node: ast.ForIn) -> None:
        if type(node.source) is ast.Send and node.source.is_stream:
            self.for_stream(node, node.source)
            return
        mark = self.next_register
        state = self.register(2)
        self.expression_in(node.source, state)
        self.at(node.source)
        self.emit(OP_ITERATE, state, state)
        variable = self.module.declared[id(node)]
        variable.register = item = self.register()
        if variable.is_cell:
            item = self.register()
        loop = Loop(lambda: self.close_stream(state))
        self.exits.append(loop)
        entry = self.jump()
        start = len(self.code)
        if variable.is_cell:
            self.emit(OP_CELL_OF, variable.register, item)
        self.block(node.body)
        self.patch_all(loop.continues)
        self.patch(entry)
        self.at(node.source)
        self.emit(OP_NEXT, state, item, start)
        self.exits.pop()
        self.patch_all(loop.breaks)
        self.next_register = mark

    def close_stream(self, stream: int) -> None:
        self.emit(OP_STREAM_CLOSE, stream)

    def for_stream(self, node: ast.ForIn, source: ast.Send) -> None:
        mark = self.next_register
        stream, chunk, done = self.register(), self.register(), self.register()
        self.expression_in(source, stream)
        variable = self.module.declared[id(node)]
        loop = Loop(lambda: self.close_stream(stream))
        self.exits.append(loop)
        start = len(self.code)
        self.at(source)
        self.emit(OP_STREAM_NEXT, chunk, stream)
        self.emit(OP_STREAM_DONE, done, chunk)
        end = self.emit(OP_IF, 0, done)
        item = self.register()
        self.emit(OP_ITEM, item, chunk, 0)
        self.bind(node, item)
        assert variable.register >= 0
        self.block(node.body)
        self.patch_all(loop.continues)
        self.emit(OP_LOOP, start)
        # An error leaves the loop too: close the stream, then let it go on.
        self.handle(start, len(self.code), chunk)
        self.close_stream(stream)
        self.emit(OP_RETHROW, chunk)
        self.exits.pop()
        self.patch(end)
        self.patch_all(loop.breaks)
        self.next_register = mark

    # ------------------------------------------------------------ ways out

    def break_(self, node: ast.Break) -> None:
        self.leave_loop(node, len(self.exits), lambda loop: loop.breaks, is_break=True)

    def continue_(self, node: ast.Continue) -> None:
        self.leave_loop(node, len(self.exits), lambda loop: loop.continues, is_break=False)

    def leave_loop(self, node: ast.Node, level: int, which: Callable[[Loop], list[int]], *, is_break: bool) -> None:
        """Jump out of (or on in) the innermost loop below `level`, through every `finally` on the way."""
        if level == 0:
            raise self.fail(node, f"`{'break' if is_break else 'continue'}` outside of a loop")
        way = self.exits[level - 1]
        if isinstance(way, Finally):
            self.through(way, lambda: self.leave_loop(node, level - 1, which, is_break=is_break))
            return
        if is_break and way.leave is not None:
            way.leave()
        which(way).append(self.jump())

    def return_(self, node: ast.Return) -> None:
        mark = self.next_register
        if node.value is None:
            self.leave_function(None, len(self.exits))
        else:
            self.leave_function(self.expression(node.value), len(self.exits))
        self.next_register = mark

    def leave_function(self, value: int | None, level: int) -> None:
        for index in range(level, 0, -1):
            way = self.exits[index - 1]
            if isinstance(way, Finally):
                # The value waits in the finally's own register while its code runs.
                if value is not None:
                    self.move(way.value, value)
                kept = None if value is None else way.value
                self.through(way, lambda index=index, kept=kept: self.leave_function(kept, index - 1))  # type: ignore[misc]
                return
            if way.leave is not None:
                way.leave()
        if value is None:
            self.emit(OP_RETURN_NULL)
        else:
            self.emit(OP_RETURN, value)

    def through(self, way: Finally, then: Callable[[], None]) -> None:
        """Go to a `finally` and, when its code has run, on with `then`."""
        way.ways.append(then)
        self.constant(len(way.ways) + 1, way.mode)
        way.entries.append(self.jump())

    def with_finally(self, body: Callable[[], None], final: Callable[[Finally], None]) -> None:
        """`body`, then `final`, whichever way the body is left."""
        mark = self.next_register
        way = Finally(self.register(), self.register())
        self.exits.append(way)
        start = len(self.code)
        body()
        self.constant(0, way.mode)
        way.entries.append(self.jump())
        self.exits.pop()
        self.handle(start, len(self.code), way.value)
        self.constant(1, way.mode)
        self.patch_all(way.entries)
        final(way)
        next_way = self.emit(OP_UNLESS_EQ, 0, way.mode, self.constant(1))
        self.emit(OP_RETHROW, way.value)
        self.patch(next_way)
        for number, then in enumerate(way.ways):
            skip = self.emit(OP_UNLESS_EQ, 0, way.mode, self.constant(number + 2))
            then()
            self.patch(skip)
        self.next_register = mark

    # ------------------------------------------------------------ errors

    def throw(self, node: ast.Throw) -> None:
        mark = self.next_register
        text = self.constant(node.error) if node.value is None else self.expression(node.value)
        self.at(node)
        self.emit(OP_THROW, text, self.other(node.error))
        self.next_register = mark

    def try_(self, node: ast.Try) -> None:
        if node.finally_body is None:
            self.try_catch(node)
            return
        final = node.finally_body
        self.with_finally(lambda: self.try_catch(node), lambda _: self.block(final))

    def try_catch(self, node: ast.Try) -> None:
        if not node.catches:
            self.block(node.body)
            return
        mark = self.next_register
        error = self.register()
        start = len(self.code)
        self.block(node.body)
        ends = [self.jump()]
        self.handle(start, len(self.code), error)
        for catch in node.catches:
            inner = self.next_register
            self.at(catch)
            miss = self.emit(OP_UNLESS_ERROR, 0, error, self.other(catch.error))
            if catch.binding:
                text = self.register()
                self.emit(OP_ERROR_TEXT, text, error)
                self.bind(catch, text)
            self.block(catch.body)
            ends.append(self.jump())
            self.patch(miss)
            self.next_register = inner
        self.emit(OP_RETHROW, error)
        self.patch_all(ends)
        self.next_register = mark

    def defer(self, node: ast.Defer) -> None:
        mark = self.next_register
        closure = self.register()
        self.closure(node, "defer", closure)
        self.emit(OP_PUSH, closure, self.defers, closure)
        self.next_register = mark

    def run_defers(self, way: Finally) -> None:
        """Call the deferred closures, last first; one that throws does not keep the others from running."""
        mark = self.next_register
        count, closure = self.register(), self.register()
        again = len(self.code)
        self.emit(OP_LENGTH, count, self.defers)
        end = self.emit(OP_UNLESS_LT, 0, self.constant(0), count)
        self.move(closure, self.defers)
        self.emit(OP_LIBRARY, closure, closure, self.other(["list::pop", 1]))
        start = len(self.code)
        self.emit(OP_CALL_VALUE, count, closure, 0)
        self.emit(OP_LOOP, again)
        self.handle(start, len(self.code), way.value)
        self.constant(1, way.mode)
        self.emit(OP_LOOP, again)
        self.patch(end)
        self.next_register = mark

    def session(self, node: ast.Session) -> None:
        mark = self.next_register
        amount = self.expression(node.budget)
        self.at(node)
        self.emit(OP_BUDGET_ENTER, amount)
        self.next_register = mark

        def leave(_: Finally) -> None:
            self.at(node)
            self.emit(OP_BUDGET_EXIT)

        self.with_finally(lambda: self.block(node.body), leave)

    # ------------------------------------------------------------ parallel

    def parallel(self, node: ast.Parallel) -> None:
        """Sends and calls that stand alone in a statement are started together; their results are set, in the order
        of the source, at the first statement that needs one of them or cannot wait, and at the end."""
        self.enter([], node.body.statements)
        group, error, results = self.register(), self.register(), self.register()
        pending: list[ast.Statement] = []
        names: set[str] = set()
        start = 0
        for statement in node.body.statements:
            call = self.overlapping(statement)
            if pending and (not _is_simple(statement) or _mentions(statement, names)):
                self.join(node, group, error, results, pending, start)
                pending, names = [], set()
            if call is None:
                self.statement(statement)
                continue
            if not pending:
                self.at(node)
                self.emit(OP_PAR_BEGIN, group)
                start = len(self.code)
            self.start_call(call, group)
            pending.append(statement)
            names.add(_bound(statement))
        if pending:
            self.join(node, group, error, results, pending, start)

    def overlapping(self, statement: ast.Statement) -> ast.Send | ast.Call | None:
        value: Any = getattr(statement, "value", None)
        if not isinstance(statement, (ast.Let, ast.ExpressionStatement)) and not (
            isinstance(statement, ast.Assign) and type(statement.target) is ast.Name
        ):
            return None
        if type(value) is ast.Send and not value.is_stream:
            return value
        if type(value) is ast.Call:
            meaning = self.module.meanings.get(id(value.callee))
            if isinstance(meaning, Symbol) and self.linker.may_overlap(meaning):
                return value
        return None

    def start_call(self, call: ast.Send | ast.Call, group: int) -> None:
        mark = self.next_register
        first = self.register(5)
        self.move(first, group)
        if isinstance(call, ast.Send):
            flags = self.send_parts(call, first + 1)
            kind = ["parallel", "send", flags]
        else:
            self.spawned_function(call, first + 1)
            kind = ["parallel", "call", 0]
        self.at(call)
        self.emit(OP_PAR_SPAWN, first, self.other(kind))
        self.next_register = mark

    def join(
        self, node: ast.Node, group: int, error: int, results: int, pending: list[ast.Statement], start: int
    ) -> None:
        # An error in between waits for the calls started before it: the first failure in the source is the one thrown.
        end = len(self.code)
        past = self.jump()
        self.handle(start, len(self.code), error, end)
        self.at(node)
        self.emit(OP_PAR_JOIN, results, group)
        self.emit(OP_RETHROW, error)
        self.patch(past)
        self.emit(OP_PAR_JOIN, results, group)
        for index, statement in enumerate(pending):
            if isinstance(statement, ast.ExpressionStatement):
                continue
            mark = self.next_register
            value = self.register()
            self.emit(OP_ITEM, value, results, index)
            if isinstance(statement, ast.Let):
                self.set_new(statement, value)
            else:
                meaning = self.module.meanings[id(statement.target)]  # type: ignore[attr-defined]
                assert isinstance(meaning, Variable)
                self.set_variable(meaning, value)
                self.next_register = mark


def _is_simple(statement: ast.Statement) -> bool:
    return isinstance(statement, (ast.Let, ast.Assign, ast.ExpressionStatement))


def _bound(statement: ast.Statement) -> str:
    if isinstance(statement, ast.Let):
        return statement.name
    target = getattr(statement, "target", None)
    return target.name if isinstance(target, ast.Name) else ""


def _mentions(node: Any, names: set[str]) -> bool:
    """Whether a statement reads or binds one of these names."""
    if isinstance(node, (ast.Name, ast.Let)) and node.name in names:
        return True
    if isinstance(node, msgspec.Struct):
        return any(_mentions(getattr(node, field), names) for field in node.__struct_fields__)
    if isinstance(node, (list, tuple)):
        return any(_mentions(part, names) for part in node)
    if isinstance(node, dict):
        return any(_mentions(part, names) for part in node.values())
    return False


Statements.statement_rules = {
    ast.Block: Statements.block,
    ast.Let: Statements.let,
    ast.Const: Statements.let,
    ast.Assign: Statements.assign,
    ast.ExpressionStatement: Statements.expression_statement,
    ast.If: Statements.if_,
    ast.While: Statements.while_,
    ast.For: Statements.for_,
    ast.ForIn: Statements.for_in,
    ast.Break: Statements.break_,
    ast.Continue: Statements.continue_,
    ast.Return: Statements.return_,
    ast.Throw: Statements.throw,
    ast.Try: Statements.try_,
    ast.Parallel: Statements.parallel,
    ast.Session: Statements.session,
    ast.Defer: Statements.defer,
    ast.Import: Statements.import_,
    ast.Mock: Statements.mock,
    ast.Function: Statements.nothing,
    ast.Tool: Statements.nothing,
    ast.Agent: Statements.nothing,
    ast.Supervisor: Statements.nothing,
    ast.Test: Statements.nothing,
}
