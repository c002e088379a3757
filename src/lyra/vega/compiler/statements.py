"""The remaining statements to register code: expressions, imports, mocks and `parallel`; and the table of them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    OP_CALL,
    OP_EFFECT,
    OP_ITEM,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_PRINT,
    OP_RETHROW,
)
from lyra.vega.compiler.control import BLOCKS, CONTROL, compile_statement, enter_scope, set_new_variable, set_variable
from lyra.vega.compiler.emitter import FunctionCode
from lyra.vega.compiler.expressions import compile_expression, compile_into
from lyra.vega.compiler.processes import (
    compile_match_arms,
    compile_receive_arms,
    compile_send_parts,
    compile_spawned_function,
)
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, parts

JOIN_ALL: Final = ["parallel", "all", 0, 0, 0]


def _compile_expression_statement(out: FunctionCode, node: ast.ExpressionStatement) -> None:
    mark = out.next_register
    call: Any = node.value
    if is_print(out, call):
        value = compile_expression(out, call.arguments[0].value) if call.arguments else out.constant("")
        out.at(call)
        out.emit(OP_PRINT, value)
    elif isinstance(call, ast.Match):
        compile_match_arms(out, call, None)
    elif isinstance(call, ast.Receive):
        compile_receive_arms(out, call, None)
    else:
        compile_expression(out, call)
    out.next_register = mark


def is_print(out: FunctionCode, node: Any) -> bool:
    return (
        type(node) is ast.Call
        and type(node.callee) is ast.Name
        and node.callee.name == "print"
        and id(node.callee) not in out.module.meanings
        and len(node.arguments) <= 1
        and not any(argument.name for argument in node.arguments)
    )


def _compile_nothing(out: FunctionCode, node: ast.Statement) -> None:
    """Declarations are made elsewhere."""


def _compile_import(out: FunctionCode, node: ast.Import) -> None:
    symbol = out.module.symbols[node.name]
    if symbol.target is not None:
        unused = out.register()
        out.emit(OP_CALL, unused, symbol.target.init_function, unused)
        out.next_register = unused


def _compile_mock(out: FunctionCode, node: ast.Mock) -> None:
    """Compile a mock, whose scripted answers the host keeps: the agent's name, then pairs of pattern and reply."""
    mark = out.next_register
    first = out.register(2)
    out.constant(node.agent, first)
    pairs = [
        ast.ListLiteral(items=[ast.Literal(value=reply.pattern), reply.reply], at=reply.at) for reply in node.replies
    ]
    compile_into(out, ast.ListLiteral(items=list(pairs), at=node.at), first + 1)
    out.at(node)
    out.emit(OP_EFFECT, first, first, out.other(["test::mock", 2]))
    out.next_register = mark


def _compile_parallel(out: FunctionCode, node: ast.Parallel) -> None:
    """Sends and calls that stand alone in a statement are started together; their results are set, in the order
    of the source, at the first statement that needs one of them or may leave, and at the end. Every other
    statement is carried out in its turn, while they run."""
    enter_scope(out, [], node.body.statements)
    group = out.register(5)
    error, results = out.register(), out.register()
    pending: list[ast.Statement] = []
    names: set[str] = set()
    start = 0
    for statement in node.body.statements:
        call = _overlapping_call(out, statement)
        if pending and (_may_leave(statement) or _mentions(statement, names)):
            _join_calls(out, node, group, error, results, pending, start)
            pending, names = [], set()
        if call is None:
            compile_statement(out, statement)
            continue
        if not pending:
            out.at(node)
            out.emit(OP_PAR_BEGIN, group)
            start = len(out.code)
        _start_call(out, call, group)
        pending.append(statement)
        names.add(_get_target_name(statement))
    if pending:
        _join_calls(out, node, group, error, results, pending, start)


def _overlapping_call(out: FunctionCode, statement: ast.Statement) -> ast.Send | ast.Call | None:
    value: Any = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Let, ast.ExpressionStatement)) and not (
        isinstance(statement, ast.Assign) and type(statement.target) is ast.Name
    ):
        return None
    if type(value) is ast.Send and not value.is_stream:
        return value
    if type(value) is ast.Call:
        meaning = out.module.meanings.get(id(value.callee))
        if isinstance(meaning, Symbol) and out.linker.may_overlap(meaning):
            return value
    return None


def _start_call(out: FunctionCode, call: ast.Send | ast.Call, group: int) -> None:
    mark = out.next_register
    first = out.register(5)
    out.move(first, group)
    if isinstance(call, ast.Send):
        flags = compile_send_parts(out, call, first + 1)
        kind = ["parallel", "send", flags, 0, 0]
    else:
        compile_spawned_function(out, call, first + 1)
        kind = ["parallel", "call", 0, 0, 0]
    out.at(call)
    out.emit(OP_PAR_SPAWN, first, out.other(kind))
    out.next_register = mark


def _join_calls(
    out: FunctionCode,
    node: ast.SyntaxNode,
    group: int,
    error: int,
    results: int,
    pending: list[ast.Statement],
    start: int,
) -> None:
    calls = [call for call in (_overlapping_call(out, statement) for statement in pending) if call is not None]
    out.linker.notes.add_parallel_block(calls, out.module, out.linker.summaries, out.name)
    # An error in between waits for the calls started before it: the first failure in the source is the one thrown.
    end = len(out.code)
    past = out.jump()
    out.handle(start, len(out.code), error, end)
    out.at(node)
    out.emit(OP_PAR_JOIN, results, group, out.other(JOIN_ALL))
    out.emit(OP_RETHROW, error)
    out.patch(past)
    out.emit(OP_PAR_JOIN, results, group, out.other(JOIN_ALL))
    for index, statement in enumerate(pending):
        if isinstance(statement, ast.ExpressionStatement):
            continue
        mark = out.next_register
        value = out.register()
        out.emit(OP_ITEM, value, results, index)
        if isinstance(statement, ast.Let):
            set_new_variable(out, statement, value)
        else:
            meaning = out.module.meanings[id(statement.target)]  # type: ignore[attr-defined]
            assert isinstance(meaning, Variable)
            set_variable(out, meaning, value)
            out.next_register = mark


_STAY: Final = (ast.Let, ast.Assign, ast.ExpressionStatement, ast.Block, ast.If, ast.While, ast.For, ast.ForIn, ast.Try)


def _may_leave(statement: ast.Statement) -> bool:
    """Return whether the statement may leave the block other than by an error, and so pass the end, where the started
    calls are joined."""
    return not isinstance(statement, _STAY) or _goes(statement, in_loop=False)


def _goes(node: Any, *, in_loop: bool) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(node, (ast.Lambda, ast.Function)):
        return False
    inside = in_loop or isinstance(node, (ast.While, ast.For, ast.ForIn))
    return any(_goes(part, in_loop=inside) for part in children(node))


def _get_target_name(statement: ast.Statement) -> str:
    if isinstance(statement, ast.Let):
        return statement.name
    target = getattr(statement, "target", None)
    return target.name if isinstance(target, ast.Name) else ""


def _mentions(node: ast.Statement, names: set[str]) -> bool:
    """Return whether a statement reads or binds one of these names."""
    return any(isinstance(part, (ast.Name, ast.Let)) and part.name in names for part in parts(node))


STATEMENTS: Final[dict[type, Callable[[FunctionCode, Any], None]]] = {
    **BLOCKS,
    **CONTROL,
    ast.ExpressionStatement: _compile_expression_statement,
    ast.Parallel: _compile_parallel,
    ast.Import: _compile_import,
    ast.Mock: _compile_mock,
    ast.Function: _compile_nothing,
    ast.Tool: _compile_nothing,
    ast.Agent: _compile_nothing,
    ast.Supervisor: _compile_nothing,
    ast.Test: _compile_nothing,
}
