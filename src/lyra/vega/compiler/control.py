"""Control flow to register code: branches, loops, errors, `finally`, `defer`, sessions.

A loop tests at its end, so that a turn costs one jump. `finally`, `defer` and `session` share one shape (see
`emitter.Finally`): the code that must run is emitted once, and every way out leads through it.

Blocks and variables are here, too: where a variable's value goes, and what a scope needs at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    OP_BUDGET_ENTER,
    OP_BUDGET_EXIT,
    OP_CALL_VALUE,
    OP_CELL,
    OP_CELL_OF,
    OP_CELL_SET,
    OP_ERROR_TEXT,
    OP_GLOBAL_SET,
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
from lyra.vega.compiler.emitter import Finally, FunctionCode, LoopExits
from lyra.vega.compiler.expressions import (
    compile_closure,
    compile_expression,
    compile_into,
    compile_operand,
    jump_if,
    loop_while,
)
from lyra.vega.plan.names import Variable
from lyra.vega.syntax import ast

# Expressions that read all they need before they write: their value may go straight into the variable assigned.
_DIRECT: Final = (ast.Binary, ast.Call, ast.Literal, ast.Index, ast.Name, ast.Field, ast.MethodCall, ast.Interpolation)


def compile_statement(out: FunctionCode, node: ast.Statement) -> None:
    out.at(node)
    out.statement_rules[type(node)](out, node)


def compile_block(out: FunctionCode, block: ast.Block) -> None:
    mark = out.next_register
    enter_scope(out, out.module.cells.get(id(block), []), block.statements)
    out.sequence(out, block.statements)
    out.next_register = mark


def compile_sequence(out: FunctionCode, statements: list[ast.Statement]) -> None:
    """Statements one after the other."""
    for statement in statements:
        compile_statement(out, statement)


def enter_scope(out: FunctionCode, variables: list[Variable], statements: list[ast.Statement]) -> None:
    """Make the shared variables of a scope, then its functions: they may be called before they stand."""
    for variable in variables:
        if variable.is_cell and not variable.is_global:
            variable.register = out.register()
            out.emit(OP_CELL, variable.register)
        elif variable.is_const and variable.literal is None and not variable.is_global:
            variable.register = out.register()
            out.constant(None, variable.register)
    for statement in statements:
        if type(statement) is ast.Function and id(statement) in out.module.declared:
            mark = out.next_register
            closure = out.register()
            compile_closure(out, statement, statement.name, closure)
            out.next_register = mark
            set_new_variable(out, statement, closure)


def set_new_variable(out: FunctionCode, node: ast.SyntaxNode, value: int) -> None:
    """Give a variable that was just declared its first value."""
    variable = out.module.declared[id(node)]
    if variable.is_global or variable.is_cell:
        set_variable(out, variable, value)
    else:
        variable.register = out.register()
        out.move(variable.register, value)


def bind_variable(out: FunctionCode, node: ast.SyntaxNode, value: int) -> None:
    """Bind a new variable with that value, in a register, a cell or a global."""
    variable = out.module.declared[id(node)]
    if variable.is_global:
        out.emit(OP_GLOBAL_SET, out.linker.slot(variable), value)
        return
    variable.register = out.register()
    if variable.is_cell:
        out.emit(OP_CELL_OF, variable.register, value)
    else:
        out.move(variable.register, value)


def set_variable(out: FunctionCode, variable: Variable, value: int) -> None:
    if variable.is_global:
        out.emit(OP_GLOBAL_SET, out.linker.slot(variable), value)
    elif variable.is_cell:
        out.emit(OP_CELL_SET, out.home(variable), value)
    else:
        out.move(out.home(variable), value)


def _compile_let(out: FunctionCode, node: ast.Let | ast.Const) -> None:
    variable = out.module.declared[id(node)]
    if variable.literal is not None:
        return
    if variable.is_global or variable.is_cell:
        mark = out.next_register
        value = out.constant(None) if node.value is None else compile_expression(out, node.value)
        out.at(node)
        set_variable(out, variable, value)
        out.next_register = mark
        return
    register = variable.register if variable.is_const else out.register()
    if node.value is None:
        out.constant(None, register)
    else:
        compile_into(out, node.value, register)
    variable.register = register


def _compile_assign(out: FunctionCode, node: ast.Assign) -> None:
    mark = out.next_register
    target = node.target
    if type(target) is ast.Index:
        whole = compile_operand(out, target.target, node.value)
        index = compile_operand(out, target.index, node.value)
        value = compile_expression(out, node.value)
        out.at(target)
        out.emit(OP_STORE, whole, index, value)
    elif type(target) is ast.Field:
        whole = compile_operand(out, target.target, node.value)
        value = compile_expression(out, node.value)
        out.at(target)
        out.emit(OP_SET_FIELD, whole, out.other(target.name), value)
    else:
        meaning = out.module.meanings.get(id(target))
        if not isinstance(meaning, Variable):
            raise out.fail(target, "this cannot be assigned")
        _compile_assign_variable(out, meaning, node.value)
    out.next_register = mark


def _compile_assign_variable(out: FunctionCode, variable: Variable, value: ast.Expression) -> None:
    is_register = not variable.is_global and not variable.is_cell
    is_logical = type(value) is ast.Binary and value.operator in ("&&", "||")
    if is_register and isinstance(value, _DIRECT) and not is_logical:
        compile_expression(out, value, out.home(variable))
    else:
        set_variable(out, variable, compile_expression(out, value))


BLOCKS: Final[dict[type, Callable[[FunctionCode, Any], None]]] = {
    ast.Block: compile_block,
    ast.Let: _compile_let,
    ast.Const: _compile_let,
    ast.Assign: _compile_assign,
}


def _compile_if(out: FunctionCode, node: ast.If) -> None:
    ends: list[int] = []
    branch: ast.Block | ast.If | None = node
    while type(branch) is ast.If:
        misses = jump_if(out, branch.condition, wanted=False)
        compile_block(out, branch.then)
        if branch.otherwise is not None:
            ends.append(out.jump())
        out.patch_all(misses)
        branch = branch.otherwise
    if type(branch) is ast.Block:
        compile_block(out, branch)
    out.patch_all(ends)


def _compile_for(out: FunctionCode, node: ast.For) -> None:
    mark = out.next_register
    enter_scope(out, out.module.cells.get(id(node), []), [])
    if node.start is not None:
        compile_statement(out, node.start)
    _compile_loop(out, node.condition, node.body, node.step)
    out.next_register = mark


def _compile_loop(
    out: FunctionCode, condition: ast.Expression | None, body: ast.Block, step: ast.Statement | None
) -> None:
    loop = LoopExits()
    out.exits.append(loop)
    is_endless = condition is None or (type(condition) is ast.Literal and condition.value is True)
    entry = None if is_endless else out.jump()
    start = len(out.code)
    compile_block(out, body)
    out.patch_all(loop.continues)
    if step is not None:
        compile_statement(out, step)
    if entry is not None and condition is not None:
        out.patch(entry)
        loop_while(out, condition, start)
    else:
        out.emit(OP_LOOP, start)
    out.exits.pop()
    out.patch_all(loop.breaks)


def _compile_for_in(out: FunctionCode, node: ast.ForIn) -> None:
    if type(node.source) is ast.Send and node.source.is_stream:
        _compile_for_stream(out, node, node.source)
        return
    mark = out.next_register
    state = out.register(2)
    compile_into(out, node.source, state)
    out.at(node.source)
    out.emit(OP_ITERATE, state, state)
    variable = out.module.declared[id(node)]
    variable.register = item = out.register()
    if variable.is_cell:
        item = out.register()
    loop = LoopExits(lambda: _close_stream(out, state))
    out.exits.append(loop)
    entry = out.jump()
    start = len(out.code)
    if variable.is_cell:
        out.emit(OP_CELL_OF, variable.register, item)
    compile_block(out, node.body)
    out.patch_all(loop.continues)
    out.patch(entry)
    out.at(node.source)
    out.emit(OP_NEXT, state, item, start)
    out.exits.pop()
    out.patch_all(loop.breaks)
    out.next_register = mark


def _close_stream(out: FunctionCode, stream: int) -> None:
    out.emit(OP_STREAM_CLOSE, stream)


def _compile_for_stream(out: FunctionCode, node: ast.ForIn, source: ast.Send) -> None:
    mark = out.next_register
    stream, chunk, done = out.register(), out.register(), out.register()
    compile_into(out, source, stream)
    variable = out.module.declared[id(node)]
    loop = LoopExits(lambda: _close_stream(out, stream))
    out.exits.append(loop)
    start = len(out.code)
    out.at(source)
    out.emit(OP_STREAM_NEXT, chunk, stream)
    out.emit(OP_STREAM_DONE, done, chunk)
    end = out.emit(OP_IF, 0, done)
    item = out.register()
    out.emit(OP_ITEM, item, chunk, 0)
    bind_variable(out, node, item)
    assert variable.register >= 0
    compile_block(out, node.body)
    out.patch_all(loop.continues)
    out.emit(OP_LOOP, start)
    # An error leaves the loop too: close the stream, then let it continue.
    out.handle(start, len(out.code), chunk)
    _close_stream(out, stream)
    out.emit(OP_RETHROW, chunk)
    out.exits.pop()
    out.patch(end)
    out.patch_all(loop.breaks)
    out.next_register = mark


def _compile_break(out: FunctionCode, node: ast.Break) -> None:
    _leave_loop(out, node, len(out.exits), lambda loop: loop.breaks, is_break=True)


def compile_continue(out: FunctionCode, node: ast.Continue) -> None:
    _leave_loop(out, node, len(out.exits), lambda loop: loop.continues, is_break=False)


def _leave_loop(
    out: FunctionCode, node: ast.SyntaxNode, level: int, which: Callable[[LoopExits], list[int]], *, is_break: bool
) -> None:
    """Jump out of (or on in) the innermost loop below `level`, through every `finally` on the way."""
    if level == 0:
        raise out.fail(node, f"`{'break' if is_break else 'continue'}` outside of a loop")
    way = out.exits[level - 1]
    if isinstance(way, Finally):
        _leave_through(out, way, lambda: _leave_loop(out, node, level - 1, which, is_break=is_break))
        return
    if is_break and way.leave is not None:
        way.leave()
    which(way).append(out.jump())


def _compile_return(out: FunctionCode, node: ast.Return) -> None:
    mark = out.next_register
    if node.value is None:
        leave_function(out, None, len(out.exits))
    else:
        leave_function(out, compile_expression(out, node.value), len(out.exits))
    out.next_register = mark


def leave_function(out: FunctionCode, value: int | None, level: int) -> None:
    for index in range(level, 0, -1):
        way = out.exits[index - 1]
        if isinstance(way, Finally):
            # The value waits in the finally's own register while its code runs.
            if value is not None:
                out.move(way.value, value)
            kept = None if value is None else way.value
            _leave_through(out, way, lambda index=index, kept=kept: leave_function(out, kept, index - 1))  # type: ignore[misc]
            return
        if way.leave is not None:
            way.leave()
    if value is None:
        out.emit(OP_RETURN_NULL)
    else:
        out.emit(OP_RETURN, value)


def _leave_through(out: FunctionCode, way: Finally, then: Callable[[], None]) -> None:
    """Go to a `finally` and, when its code has run, on with `then`."""
    way.ways.append(then)
    out.constant(len(way.ways) + 1, way.mode)
    way.entries.append(out.jump())


def compile_with_finally(out: FunctionCode, body: Callable[[], None], final: Callable[[Finally], None]) -> None:
    """`body`, then `final`, whichever way the body is left."""
    mark = out.next_register
    way = Finally(out.register(), out.register())
    out.exits.append(way)
    start = len(out.code)
    body()
    out.constant(0, way.mode)
    way.entries.append(out.jump())
    out.exits.pop()
    out.handle(start, len(out.code), way.value)
    out.constant(1, way.mode)
    out.patch_all(way.entries)
    final(way)
    next_way = out.emit(OP_UNLESS_EQ, 0, way.mode, out.constant(1))
    out.emit(OP_RETHROW, way.value)
    out.patch(next_way)
    for number, then in enumerate(way.ways):
        skip = out.emit(OP_UNLESS_EQ, 0, way.mode, out.constant(number + 2))
        then()
        out.patch(skip)
    out.next_register = mark


def _compile_throw(out: FunctionCode, node: ast.Throw) -> None:
    mark = out.next_register
    text = out.constant(node.error) if node.value is None else compile_expression(out, node.value)
    out.at(node)
    out.emit(OP_THROW, text, out.other(node.error))
    out.next_register = mark


def _compile_try(out: FunctionCode, node: ast.Try) -> None:
    if node.finally_body is None:
        _compile_try_catch(out, node)
        return
    final = node.finally_body
    compile_with_finally(out, lambda: _compile_try_catch(out, node), lambda _: compile_block(out, final))


def _compile_try_catch(out: FunctionCode, node: ast.Try) -> None:
    if not node.catches:
        compile_block(out, node.body)
        return
    mark = out.next_register
    error = out.register()
    start = len(out.code)
    compile_block(out, node.body)
    ends = [out.jump()]
    out.handle(start, len(out.code), error)
    for catch in node.catches:
        inner = out.next_register
        out.at(catch)
        miss = out.emit(OP_UNLESS_ERROR, 0, error, out.other(catch.error))
        if catch.binding:
            text = out.register()
            out.emit(OP_ERROR_TEXT, text, error)
            bind_variable(out, catch, text)
        compile_block(out, catch.body)
        ends.append(out.jump())
        out.patch(miss)
        out.next_register = inner
    out.emit(OP_RETHROW, error)
    out.patch_all(ends)
    out.next_register = mark


def _compile_defer(out: FunctionCode, node: ast.Defer) -> None:
    mark = out.next_register
    closure = out.register()
    compile_closure(out, node, "defer", closure)
    out.emit(OP_PUSH, closure, out.defers, closure)
    out.next_register = mark


def run_defers(out: FunctionCode, way: Finally) -> None:
    """Call the deferred closures, last first; one that throws does not keep the others from running."""
    mark = out.next_register
    count, closure = out.register(), out.register()
    again = len(out.code)
    out.emit(OP_LENGTH, count, out.defers)
    end = out.emit(OP_UNLESS_LT, 0, out.constant(0), count)
    out.move(closure, out.defers)
    out.emit(OP_LIBRARY, closure, closure, out.other(["list::pop", 1]))
    start = len(out.code)
    out.emit(OP_CALL_VALUE, count, closure, 0)
    out.emit(OP_LOOP, again)
    out.handle(start, len(out.code), way.value)
    out.constant(1, way.mode)
    out.emit(OP_LOOP, again)
    out.patch(end)
    out.next_register = mark


def _compile_session(out: FunctionCode, node: ast.Session) -> None:
    mark = out.next_register
    amount = compile_expression(out, node.budget)
    out.at(node)
    out.emit(OP_BUDGET_ENTER, amount)
    out.next_register = mark

    def leave(_: Finally) -> None:
        out.at(node)
        out.emit(OP_BUDGET_EXIT)

    compile_with_finally(out, lambda: compile_block(out, node.body), leave)


CONTROL: Final[dict[type, Callable[[FunctionCode, Any], None]]] = {
    ast.If: _compile_if,
    ast.While: lambda out, node: _compile_loop(out, node.condition, node.body, None),
    ast.For: _compile_for,
    ast.ForIn: _compile_for_in,
    ast.Break: _compile_break,
    ast.Continue: compile_continue,
    ast.Return: _compile_return,
    ast.Throw: _compile_throw,
    ast.Try: _compile_try,
    ast.Session: _compile_session,
    ast.Defer: _compile_defer,
}
