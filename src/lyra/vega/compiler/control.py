"""Control flow to register code: branches, loops, errors, `finally`, `defer`, sessions.

A loop tests at its end, so that a turn costs one jump. `finally`, `defer` and `session` share one shape (see
`emitter.Finally`): the code that must run is emitted once, and whoever leaves passes through it.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.vega.bytecode.opcodes import (
    OP_BUDGET_ENTER,
    OP_BUDGET_EXIT,
    OP_CALL_VALUE,
    OP_CELL_OF,
    OP_ERROR_TEXT,
    OP_IF,
    OP_ITEM,
    OP_ITERATE,
    OP_LENGTH,
    OP_LIBRARY,
    OP_LOOP,
    OP_NEXT,
    OP_PUSH,
    OP_RETHROW,
    OP_RETURN,
    OP_RETURN_NULL,
    OP_STREAM_CLOSE,
    OP_STREAM_DONE,
    OP_STREAM_NEXT,
    OP_THROW,
    OP_UNLESS_EQ,
    OP_UNLESS_ERROR,
    OP_UNLESS_LT,
)
from lyra.vega.compiler.blocks import Blocks
from lyra.vega.compiler.emitter import Finally, Loop
from lyra.vega.syntax import ast

__all__ = ["Control"]


class Control(Blocks):
    defers = -1  # the register of the list of deferred closures

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
