"""Statements to register code, and the table of them all: expressions, imports, mocks, `parallel`; and what concerns
patterns, processes and agents: match, receive, spawn, send, await, and agents' settings. `control` has the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    OP_AWAIT,
    OP_CALL,
    OP_EFFECT,
    OP_INNER,
    OP_ITEM,
    OP_LIST,
    OP_LOOP,
    OP_MAP,
    OP_NO_MATCH,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_PRINT,
    OP_RECEIVE,
    OP_RECEIVE_NEXT,
    OP_RECEIVE_TAKE,
    OP_RETHROW,
    OP_SEND,
    OP_SEND_STREAM,
    OP_SEND_WITH,
    OP_SPAWN,
    OP_SPAWN_SUPERVISED,
    OP_UNLESS_EQ,
    OP_UNLESS_LIST,
    OP_UNLESS_VARIANT,
)
from lyra.vega.compiler.calls import compile_arguments
from lyra.vega.compiler.control import (
    BLOCKS,
    CONTROL,
    bind_variable,
    compile_block,
    compile_statement,
    enter_scope,
    set_new_variable,
    set_variable,
)
from lyra.vega.compiler.emitter import FunctionCode
from lyra.vega.compiler.expressions import compile_expression, compile_into, compile_operand, compile_run
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, parts

# The flags of SEND: which of its optional registers are filled.
SEND_TIMEOUT: Final = 1
SEND_BUDGET: Final = 2

# Fields whose names are words even where a variable has the same name.
_WORD_FIELDS: Final = frozenset({"strategy", "on", "priority", "memory", "capabilities", "output", "backoff"})


# ------------------------------------------------------------ patterns


def _compile_pattern(out: FunctionCode, node: ast.Pattern, value: int, misses: list[int]) -> None:
    """Test a value and bind its names; the jumps for a miss are added to `misses`."""
    out.at(node)
    if type(node) is ast.NamePattern:
        bind_variable(out, node, value)
    elif type(node) is ast.LiteralPattern:
        literal = out.constant(node.value)
        misses.append(out.emit(OP_UNLESS_EQ, 0, value, literal))
    elif type(node) is ast.VariantPattern:
        misses.append(out.emit(OP_UNLESS_VARIANT, 0, value, int(node.variant == "Err")))
        _compile_part(out, node.inner, OP_INNER, value, 0, misses)
    elif type(node) is ast.ListPattern:
        misses.append(out.emit(OP_UNLESS_LIST, 0, value, len(node.items)))
        for index, item in enumerate(node.items):
            _compile_part(out, item, OP_ITEM, value, index, misses)


def _compile_part_or_whole(out: FunctionCode, node: ast.Pattern, value: int, misses: list[int]) -> None:
    """Compile the pattern of an arm. A plain name that is never assigned is simply another name for the value."""
    variable = out.module.declared[id(node)] if type(node) is ast.NamePattern else None
    if variable is not None and not (variable.is_global or variable.is_cell or variable.is_assigned):
        variable.register = value
    else:
        _compile_pattern(out, node, value, misses)


def _compile_part(out: FunctionCode, node: ast.Pattern, op: int, value: int, index: int, misses: list[int]) -> None:
    """Compile a pattern inside another: take the part out, then test it. A plain name needs no second register."""
    if type(node) is ast.Wildcard:
        return
    part = out.register()
    out.emit(op, part, value, index)
    variable = out.module.declared[id(node)] if type(node) is ast.NamePattern else None
    if variable is not None and not variable.is_global and not variable.is_cell:
        variable.register = part
    else:
        _compile_pattern(out, node, part, misses)


def _compile_arm_body(out: FunctionCode, arm: ast.Arm, into: int | None) -> None:
    statements = arm.body.statements
    if into is None:
        compile_block(out, arm.body)
    elif arm.is_value and len(statements) == 1 and type(statements[0]) is ast.ExpressionStatement:
        compile_into(out, statements[0].value, into)
    else:
        compile_block(out, arm.body)
        out.constant(None, into)


def _compile_arms(out: FunctionCode, node: ast.Match | ast.Receive, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    result = out.register()
    if isinstance(node, ast.Match):
        compile_match_arms(out, node, result)
    else:
        compile_receive_arms(out, node, result)
    out.move(into, result)
    out.next_register = mark
    return into


def compile_match_arms(out: FunctionCode, node: ast.Match, result: int | None) -> None:
    """`result` is None where the value is not used."""
    mark = out.next_register
    subject = out.register()
    compile_into(out, node.subject, subject)
    ends: list[int] = []
    for arm in node.arms:
        inner = out.next_register
        misses: list[int] = []
        _compile_part_or_whole(out, arm.pattern, subject, misses)
        _compile_arm_body(out, arm, result)
        ends.append(out.jump())
        out.patch_all(misses)
        out.next_register = inner
    out.at(node)
    out.emit(OP_NO_MATCH, subject)
    out.patch_all(ends)
    out.next_register = mark


def compile_receive_arms(out: FunctionCode, node: ast.Receive, result: int | None) -> None:
    mark = out.next_register
    message = out.register()
    state = out.register(3)
    if node.after is not None:
        compile_into(out, node.after, state + 1)
    out.at(node)
    out.emit(OP_RECEIVE, state, int(node.after is not None))
    again = out.emit(OP_RECEIVE_NEXT, state, message)
    out.patch(again)  # never taken without `after`
    ends: list[int] = []
    for arm in node.arms:
        inner = out.next_register
        misses: list[int] = []
        _compile_part_or_whole(out, arm.pattern, message, misses)
        out.emit(OP_RECEIVE_TAKE, state)
        _compile_arm_body(out, arm, result)
        ends.append(out.jump())
        out.patch_all(misses)
        out.next_register = inner
    out.emit(OP_LOOP, again)
    if node.after_body is not None:
        out.patch(again)
        _compile_arm_body(out, node.after_body, result)
    out.patch_all(ends)
    out.next_register = mark


# ------------------------------------------------------------ messages


def compile_send(out: FunctionCode, node: ast.Send, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    if node.timeout is None and node.budget is None and not node.is_stream:
        target = compile_operand(out, node.target, node.message)
        message = compile_expression(out, node.message)
        out.at(node)
        out.emit(OP_SEND, into, target, message)
    else:
        first = out.register(4)
        flags = compile_send_parts(out, node, first)
        out.at(node)
        out.emit(OP_SEND_STREAM if node.is_stream else OP_SEND_WITH, into, first, flags)
    out.next_register = mark
    return into


def compile_send_parts(out: FunctionCode, node: ast.Send, first: int) -> int:
    """Target, message, time-out and budget in four registers; gives the flags of those that are there."""
    compile_into(out, node.target, first)
    compile_into(out, node.message, first + 1)
    flags = 0
    if node.timeout is not None:
        compile_into(out, node.timeout, first + 2)
        flags |= SEND_TIMEOUT
    if node.budget is not None:
        compile_into(out, node.budget, first + 3)
        flags |= SEND_BUDGET
    return flags


def _compile_await(out: FunctionCode, node: ast.Await, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    operand = compile_expression(out, node.operand)
    out.at(node)
    out.emit(OP_AWAIT, into, operand)
    out.next_register = mark
    return into


# ------------------------------------------------------------ starting processes


def compile_spawn(out: FunctionCode, node: ast.Spawn, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    first = out.register(3)
    kind, name = compile_spawned(out, node, node.target, first, is_function=node.is_function)
    details = out.other(["spawn", kind, name, "async" if node.is_async else ""])
    if node.supervision is None:
        out.at(node)
        out.emit(OP_SPAWN, into, first, details)
    else:
        compile_settings(out, node.supervision.settings, first + 2)
        out.at(node)
        out.emit(OP_SPAWN_SUPERVISED, into, first, details)
    out.next_register = mark
    return into


def compile_spawned(
    out: FunctionCode, node: ast.SyntaxNode, target: ast.Expression, first: int, *, is_function: bool
) -> tuple[str, str]:
    """Put what is spawned into two registers: a function and its arguments, or an agent's settings and null."""
    meaning = out.module.meanings.get(id(target))
    if is_function or type(target) is ast.Call:
        if type(target) is not ast.Call:
            raise out.fail(node, "`spawn fn` needs a call", hint="write `spawn fn worker(x)`")
        return "function", compile_spawned_function(out, target, first)
    if isinstance(meaning, Symbol) and meaning.kind in ("agent", "supervisor"):
        function = out.linker.configuration(meaning)
        out.at(node)
        out.emit(OP_CALL, first, function, first)
        out.constant(None, first + 1)
        return meaning.kind, meaning.key
    name = getattr(target, "name", "")
    raise out.fail(target, f"there is no agent `{name}`", hint="declare `agent NAME { … }`, or `spawn fn NAME(…)`")


def compile_spawned_function(out: FunctionCode, call: ast.Call, first: int) -> str:
    compile_into(out, call.callee, first)
    meaning = out.module.meanings.get(id(call.callee))
    mark = out.next_register
    if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
        arguments = compile_arguments(out, call, meaning.node.parameters, meaning.name)
        count = len(meaning.node.parameters)
    else:
        arguments = compile_run(out, [argument.value for argument in call.arguments])
        count = len(call.arguments)
    out.at(call)
    out.emit(OP_LIST, first + 1, arguments, count)
    out.next_register = mark
    return meaning.name if isinstance(meaning, (Symbol, Variable)) else "function"


# ------------------------------------------------------------ settings


def compile_settings(out: FunctionCode, fields: dict[str, Any], into: int) -> None:
    """Compile a map of settings: each an expression, or a block of settings."""
    mark = out.next_register
    first = out.register(2 * len(fields))
    for index, (name, value) in enumerate(fields.items()):
        out.constant(name, first + 2 * index)
        inner = out.next_register
        if isinstance(value, dict):
            compile_settings(out, value, first + 2 * index + 1)
        elif type(value) is ast.TypeLiteral:
            out.constant(out.source.text[value.at : value.end], first + 2 * index + 1)  # as it is written
        else:
            _compile_setting(out, value, first + 2 * index + 1, is_word=name in _WORD_FIELDS)
        out.next_register = inner
    out.emit(OP_MAP, into, first, 2 * len(fields))
    out.next_register = mark


def _compile_setting(out: FunctionCode, node: ast.Expression, into: int, *, is_word: bool) -> None:
    mark = out.next_register
    means = out.module.meanings.get(id(node))
    if type(node) is ast.Name and (is_word or means is None):
        out.constant(node.name, into)
    elif type(node) is ast.Path and means is None:
        out.constant(f"{node.module}::{node.name}", into)
    elif type(node) is ast.ListLiteral:
        first = out.register(len(node.items))
        for index, item in enumerate(node.items):
            _compile_setting(out, item, first + index, is_word=is_word)
        out.emit(OP_LIST, into, first, len(node.items))
    elif type(node) is ast.Call and out.module.meanings.get(id(node.callee)) is None:
        _compile_called_setting(out, node, into)
    else:
        compile_expression(out, node, into)
    out.next_register = mark


def _compile_called_setting(out: FunctionCode, node: ast.Call, into: int) -> None:
    """`exponential(100ms, 2.0, 5s)` is a list: the word, then what it is given."""
    first = out.register(1 + len(node.arguments))
    out.constant(getattr(node.callee, "name", ""), first)
    for index, argument in enumerate(node.arguments):
        _compile_setting(out, argument.value, first + 1 + index, is_word=False)
    out.emit(OP_LIST, into, first, 1 + len(node.arguments))


PROCESSES: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Match: _compile_arms,
    ast.Receive: _compile_arms,
    ast.Send: compile_send,
    ast.Await: _compile_await,
    ast.Spawn: compile_spawn,
}


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
