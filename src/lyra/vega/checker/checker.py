"""Judging a program before it runs: `check_source`.

The checker finds unknown names, calls that do not fit, declared types that are not kept, settings that no agent has,
amounts that do not go together, code that is never reached. It says all it finds in one run, each with a place and
where possible with what was probably meant, and never refuses a program for what it cannot know.

The check is functions over one `scope.ModuleCheck`, which holds scopes and remarks: `types` knows kinds, then come
`expressions`, `settings` and, here, what concerns processes (`spawn`, sends, `await`, the arms of `match` and
`receive`), statements and declarations, each built on those before it. What leads back up (a lambda holds a block) goes
through `CheckRules`. An import is followed through `load`, which the host gives; without it imported names are taken on
trust.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from lyra.core.imported_node import ImportedNode, NodeFile, NodeValueKind
from lyra.core.limits import VEGA_PROBLEMS_MAX
from lyra.errors import CODES, CheckError, ParseError
from lyra.vega.checker.expressions import KINDS, NOT_CALLED, check_function_body, kind_of, member_of
from lyra.vega.checker.scope import (
    ROLES,
    Binding,
    CheckContext,
    CheckRules,
    CheckScope,
    ModuleCheck,
    Signature,
    nearest,
)
from lyra.vega.checker.settings import check_agent_settings, check_supervision, check_tool_settings
from lyra.vega.checker.types import ANY, STR, ValueKind, an
from lyra.vega.stdlib.table import ERRORS, GLOBALS
from lyra.vega.syntax import ast
from lyra.vega.syntax.ast import Import, Module, Statement
from lyra.vega.syntax.facts import ends, names_in_use, walk_own_parts
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Diagnostic, Source, source_error


def _kind_of_spawn(check: ModuleCheck, node: ast.Spawn) -> ValueKind:
    check_spawn_target(check, node.target, is_function=node.is_function)
    if node.supervision is not None:
        check_supervision(check, node.supervision.settings, node.supervision.places)
    return ValueKind("future" if node.is_async else "process")


def check_spawn_target(check: ModuleCheck, node: ast.Expression, *, is_function: bool) -> None:
    """Check that `spawn` or `child` names an agent, a supervisor or a call."""
    if is_function:
        kind_of(check, node)
        return
    assert isinstance(node, (ast.Name, ast.Path))
    name = node.name if isinstance(node, ast.Name) else f"{node.module}::{node.name}"
    binding = check.scope.find(node.name) if isinstance(node, ast.Name) else member_of(check, node)
    if binding is None:
        if isinstance(node, ast.Name):
            near = nearest(node.name, check.agents)
            hint = f"did you mean `{near}`?" if near else "an agent is declared with `agent`"
            check.error_on(node, f"unknown agent `{node.name}`", hint)
    elif binding.role in ("function", "tool"):
        check.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent", f"write `spawn fn {name}(…)`")
    elif binding.role not in NOT_CALLED:
        check.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent")


def _kind_of_send(check: ModuleCheck, node: ast.Send) -> ValueKind:
    binding = check.scope.find(node.target.name) if isinstance(node.target, ast.Name) else None
    if isinstance(node.target, ast.Name) and binding is not None and binding.role in NOT_CALLED:
        hint = f"start it first: `let p = spawn {node.target.name};`"
        check.error_on(node.target, f"`{node.target.name}` is no process yet", hint)
    else:
        target = kind_of(check, node.target)
        if target.name not in ("any", "process", "null"):
            less = "to compare with a negative number write `x < -1`" if target.name in ("int", "float") else None
            check.fault(node.target, f"only a process can be sent to, not {an(target)}", less)
    kind_of(check, node.message)
    _warn_if_meant_as_less(check, node)
    if node.timeout is not None:
        check.require_kind(node.timeout, ValueKind("duration"), kind_of(check, node.timeout), "`timeout`")
    if node.budget is not None:
        check.require_kind(node.budget, ValueKind("money"), kind_of(check, node.budget), "`budget`")
    return ValueKind("stream") if node.is_stream else ANY


def _warn_if_meant_as_less(check: ModuleCheck, node: ast.Send) -> None:
    """Warn about `x <-1`: it sends, and may be meant as a comparison."""
    message, text = node.message, check.source.text
    is_number = isinstance(message, ast.Literal) and type(message.value) in (int, float)
    if is_number and text[message.at - 2 : message.at] == "<-":
        shown = text[message.at : message.end]
        hint = f"to compare write `< -{shown}`; to send, put a space before `{shown}`"
        check.warn(message.at - 2, message.end, f"`<-{shown}` sends {shown}", hint)


def _kind_of_await(check: ModuleCheck, node: ast.Await) -> ValueKind:
    kind = kind_of(check, node.operand)
    if kind.name not in ("any", "future", "stream", "process"):
        check.fault(node.operand, f"only a future or a stream can be awaited, not {an(kind)}")
    return ValueKind("process") if isinstance(node.operand, ast.Spawn) else ANY


# ---------------------------------------------------------------- match and receive


def _kind_of_match(check: ModuleCheck, node: ast.Match) -> ValueKind:
    kind_of(check, node.subject)
    _check_arms(check, node.arms)
    return ANY


def _kind_of_receive(check: ModuleCheck, node: ast.Receive) -> ValueKind:
    _check_arms(check, node.arms)
    if node.after is not None and node.after_body is not None:
        check.require_kind(node.after, ValueKind("duration"), kind_of(check, node.after), "`after`")
        _check_arm_body(check, node.after_body, CheckScope(check.scope))
    return ANY


def _check_arms(check: ModuleCheck, arms: list[ast.Arm]) -> None:
    catch_all = False
    for arm in arms:
        if catch_all:
            check.warn(arm.at, arm.pattern.end, "this arm is never reached", "an arm above it takes everything")
            catch_all = False  # told once
        scope = CheckScope(check.scope)
        _check_pattern(check, arm.pattern, scope)
        _check_arm_body(check, arm, scope)
        catch_all = catch_all or isinstance(arm.pattern, (ast.Wildcard, ast.NamePattern))


def _check_arm_body(check: ModuleCheck, arm: ast.Arm, scope: CheckScope) -> None:
    if not arm.is_value:
        check.block_rule(check, arm.body, scope)
        return
    (statement,) = arm.body.statements
    assert isinstance(statement, ast.ExpressionStatement)
    outer, check.scope = check.scope, scope
    kind_of(check, statement.value)
    check.scope = outer


def _check_pattern(check: ModuleCheck, pattern: ast.Pattern, scope: CheckScope) -> None:
    if isinstance(pattern, ast.NamePattern):
        outer = check.scope.find(pattern.name)
        if pattern.name in scope.names:
            check.error_on(pattern, f"`{pattern.name}` is bound twice in this pattern")
        elif outer is not None and outer.role == "constant":
            hint = "bind a name and compare it in the arm"
            check.warn(pattern.at, pattern.end, f"this binds a new `{pattern.name}`, it is not compared", hint)
        scope.names[pattern.name] = Binding("variable")
    elif isinstance(pattern, ast.VariantPattern):
        _check_pattern(check, pattern.inner, scope)
    elif isinstance(pattern, ast.ListPattern):
        for item in pattern.items:
            _check_pattern(check, item, scope)


PROCESS_KINDS: Final[dict[type, Callable[[ModuleCheck, Any], ValueKind]]] = {
    ast.Spawn: _kind_of_spawn,
    ast.Send: _kind_of_send,
    ast.Await: _kind_of_await,
    ast.Match: _kind_of_match,
    ast.Receive: _kind_of_receive,
}


# What `catch` may name although no statement of the program throws it.
CATCH_NAMES: Final = frozenset({row.catch for row in CODES.values()}) | frozenset(ERRORS)
_ROLES: Final[dict[type, str]] = {
    ast.Function: "function",
    ast.Tool: "tool",
    ast.Agent: "agent",
    ast.Supervisor: "supervisor",
    ast.Import: "import",
}
_ONLY_TOP: Final = {
    ast.Agent: "an agent",
    ast.Supervisor: "a supervisor",
    ast.Import: "an import",
    ast.Test: "a test",
    ast.Tool: "a tool",
}
_ITERABLE: Final = ("any", "list", "map", "str", "stream")
_ALONE: Final = "what is a whole statement runs beside others: put this into a function and call it here"


def _asks(statement: ast.Statement) -> bool:
    return any(isinstance(part, ast.Send) for part in walk_own_parts(statement))


# ---------------------------------------------------------------- blocks


def check_block(check: ModuleCheck, block: ast.Block, scope: CheckScope | None = None) -> None:
    outer = check.scope
    check.scope = scope or CheckScope(outer)
    check_statements(check, block.statements)
    check.scope = outer


def check_statements(check: ModuleCheck, statements: Sequence[ast.Statement]) -> None:
    _declare_hoisted(check, statements)
    ended, told = False, False
    for statement in statements:
        if ended and not told and not isinstance(statement, ast.Declaration):
            check.warn(statement.at, statement.end, "this is never reached")
            told = True
        _CHECKS[type(statement)](check, statement)
        ended = ended or ends(statement)


def _declare_hoisted(check: ModuleCheck, statements: Sequence[ast.Statement]) -> None:
    """Make the declarations of a block known before its statements are looked at."""
    check.agents.update(statement.name for statement in statements if isinstance(statement, ast.Agent))
    for statement in statements:
        role = _ROLES.get(type(statement))
        if role is None:
            continue
        if isinstance(statement, ast.Import):
            if statement.name:
                check.declare(statement, statement.name, check.resolve_import(statement))
            check.has_foreign_tools = check.has_foreign_tools or statement.kind == "mcp"
        elif isinstance(statement, (ast.Function, ast.Tool)):
            signature = check.signature(statement.parameters, statement.result)
            check.declare(statement, statement.name, Binding(role, ValueKind("function"), signature))
        elif isinstance(statement, (ast.Agent, ast.Supervisor)):
            check.declare(statement, statement.name, Binding(role))


def _check_block_within(check: ModuleCheck, block: ast.Block, scope: CheckScope | None = None, **changes: Any) -> None:
    """Check a block in a changed context."""
    context = check.context
    check.context = msgspec.structs.replace(context, **changes)
    check_block(check, block, scope)
    check.context = context


def check_condition(check: ModuleCheck, node: ast.Expression, word: str) -> None:
    kind = kind_of(check, node)
    if kind.name not in ("any", "bool"):
        check.fault(node, f"the condition of `{word}` is a bool, not {an(kind)}")


# ---------------------------------------------------------------- values


def _check_let(check: ModuleCheck, node: ast.Let) -> None:
    calls_itself = isinstance(node.value, ast.Lambda) and check.scope.find(node.name) is None
    if calls_itself:  # by the name that will hold it
        check.scope.names[node.name] = Binding("variable")
    kind = kind_of(check, node.value) if node.value is not None else ValueKind("null")
    if calls_itself:
        del check.scope.names[node.name]
    if node.type is not None:
        declared = check.kind_of_type(node.type)
        if node.value is not None:
            check.require_kind(node.value, declared, kind, f"`{node.name}`")
        binding = Binding("variable", declared, is_declared=True)
    elif node.name in check.assigned or kind.name == "null":  # one that is null is asked before it is used
        binding = Binding("variable")
    else:
        binding = Binding("variable", _find_lasting_kind(check, node, kind))
    if isinstance(node.value, ast.Lambda) and node.name not in check.assigned:
        binding.signature = check.signature(node.value.parameters, None)  # it holds this function for good
    check.declare(node, node.name, binding)


def _find_lasting_kind(check: ModuleCheck, node: ast.Let | ast.Const, kind: ValueKind) -> ValueKind:
    """Return the kind of a variable as it stays. What a list or map holds may change without an assignment, so only
    that it is one is kept; the answer of a node has its fields as long as no statement assigns one."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.callee, ast.Name) and node.name not in check.changed:
        callee = check.scope.find(value.callee.name)
        if callee is not None and callee.role == "import" and kind.fields:
            return kind
    return ValueKind(kind.name)


def _check_const(check: ModuleCheck, node: ast.Const) -> None:
    kind = kind_of(check, node.value)
    declared = check.kind_of_type(node.type)
    check.require_kind(node.value, declared, kind, f"`{node.name}`")
    kept = declared if node.type is not None else _find_lasting_kind(check, node, kind)
    check.declare(node, node.name, Binding("constant", kept))


def _check_assign(check: ModuleCheck, node: ast.Assign) -> None:
    kind = kind_of(check, node.value)
    target = node.target
    if not isinstance(target, ast.Name):
        wanted = kind_of(check, target)
        check.require_kind(node.value, wanted, kind, "what is stored here")
        return
    binding = check.scope.find(target.name)
    if binding is None and target.name in GLOBALS:
        hint = f"a variable of your own is `let {target.name} = …`"
        check.error_on(target, f"`{target.name}` is a function of the library and cannot be assigned to", hint)
    elif binding is None:
        check.unknown(target, target.name, f"a new variable is `let {target.name} = …`")
    elif binding.role != "variable":
        check.error_on(target, f"`{target.name}` is {ROLES[binding.role]} and cannot be assigned to")
    elif binding.is_declared:
        check.require_kind(node.value, binding.kind, kind, f"`{target.name}`")


def _check_expression(check: ModuleCheck, node: ast.ExpressionStatement) -> None:
    kind_of(check, node.value)
    if isinstance(node.value, ast.Binary) and node.value.operator == "==":
        check.warn(node.value.at, node.value.end, "this compares, and nothing uses the answer", "to assign write `=`")


def _check_return(check: ModuleCheck, node: ast.Return) -> None:
    kind = kind_of(check, node.value) if node.value is not None else ValueKind("null")
    if check.context.in_defer:
        check.error(node.at, node.at + 6, "`return` cannot stand in `defer`", "the function has returned already")
    elif not check.context.in_function:
        check.error(node.at, node.at + 6, "`return` stands outside a function", "to end the program: `process::exit()`")
    elif node.value is not None:
        check.require_kind(node.value, check.context.result, kind, "what this function gives")


def _check_jump(check: ModuleCheck, node: ast.Break | ast.Continue) -> None:
    word = "break" if isinstance(node, ast.Break) else "continue"
    if not check.context.in_loop:
        check.error(node.at, node.at + len(word), f"`{word}` stands outside a loop")


def _check_throw(check: ModuleCheck, node: ast.Throw) -> None:
    if node.value is not None:
        kind_of(check, node.value)


# ---------------------------------------------------------------- branches and loops


def _check_if(check: ModuleCheck, node: ast.If) -> None:
    step: ast.Block | ast.If | None = node
    while isinstance(step, ast.If):
        check_condition(check, step.condition, "if")
        check_block(check, step.then)
        step = step.otherwise
    if step is not None:
        check_block(check, step)


def _check_while(check: ModuleCheck, node: ast.While) -> None:
    check_condition(check, node.condition, "while")
    _check_block_within(check, node.body, in_loop=True)


def _check_for(check: ModuleCheck, node: ast.For) -> None:
    outer = check.scope
    check.scope = CheckScope(outer)
    start = node.start
    if (
        isinstance(start, ast.Assign)
        and isinstance(start.target, ast.Name)
        and check.scope.find(start.target.name) is None
    ):
        _check_let(check, ast.Let(start.target.name, None, start.value, at=start.at, end=start.end))  # the loop's own
    elif start is not None:
        _CHECKS[type(start)](check, start)
    if node.condition is not None:
        check_condition(check, node.condition, "for")
    if node.step is not None:
        _CHECKS[type(node.step)](check, node.step)
    _check_block_within(check, node.body, in_loop=True)
    check.scope = outer


def _check_for_in(check: ModuleCheck, node: ast.ForIn) -> None:
    kind = kind_of(check, node.source)
    if kind.name not in _ITERABLE:
        hint = "count with `for let i = 0; i < n; i = i + 1 {`" if kind.name == "int" else None
        check.fault(node.source, f"{an(kind)} has no items to go through", hint)
    inner = kind.inner[0] if kind.name == "list" and kind.inner else ANY
    scope = CheckScope(check.scope)
    scope.names[node.name] = Binding("variable", STR if kind.name == "str" else inner)
    if node.name in check.assigned:
        scope.names[node.name] = Binding("variable")
    _check_block_within(check, node.body, scope, in_loop=True)


# ---------------------------------------------------------------- scopes


def _check_try(check: ModuleCheck, node: ast.Try) -> None:
    _check_block_within(check, node.body, in_try=check.context.in_try or bool(node.catches))
    seen: set[str] = set()
    for catch in node.catches:
        offset = check.source.text.find(catch.error, catch.at + len("catch"))
        end = offset + len(catch.error)
        if catch.error in seen or "Error" in seen:
            check.warn(offset, end, "this `catch` is never reached", "one above it takes the same errors")
        elif catch.error not in CATCH_NAMES and catch.error not in check.thrown and not check.has_foreign_errors:
            near = nearest(catch.error, CATCH_NAMES | check.thrown)
            hint = f"did you mean `{near}`?" if near else "nothing here throws it"
            check.warn(offset, end, f"no error is called `{catch.error}`", hint)
        seen.add(catch.error)
        scope = CheckScope(check.scope)
        if catch.binding:
            scope.names[catch.binding] = Binding("variable", ANY if catch.binding in check.assigned else STR)
        check_block(check, catch.body, scope)
    if node.finally_body is not None:
        check_block(check, node.finally_body)


def _check_parallel(check: ModuleCheck, node: ast.Parallel) -> None:
    """Its names are seen after it, so it has no scope of its own."""
    check_statements(check, node.body.statements)
    asking = [part for part in node.body.statements if _asks(part)]
    for statement in asking[:-1]:  # nothing waits for the last
        if not isinstance(getattr(statement, "value", None), ast.Send):
            check.warn(statement.at, statement.end, "what follows in `parallel` waits for this statement", _ALONE)


def _check_session(check: ModuleCheck, node: ast.Session) -> None:
    check.require_kind(node.budget, ValueKind("money"), kind_of(check, node.budget), "the budget of a session")
    check_block(check, node.body)


def _check_mock(check: ModuleCheck, node: ast.Mock) -> None:
    offset, end = check.name_place(node, node.agent)
    binding = check.scope.find(node.agent)
    if not check.context.in_test:
        check.error(node.at, node.at + len("mock"), "`mock` stands outside a test")
    if binding is None or binding.role != "agent":
        near = nearest(node.agent, check.agents)
        check.error(offset, end, f"unknown agent `{node.agent}`", f"did you mean `{near}`?" if near else None)
    for reply in node.replies:
        kind_of(check, reply.reply)


# ---------------------------------------------------------------- declarations


def _check_function(check: ModuleCheck, node: ast.Function) -> None:
    if check.scope is not check.top:
        _check_declared_body(check, node)


def _check_declared_body(check: ModuleCheck, node: ast.Function | ast.Tool) -> None:
    if isinstance(node, ast.Tool):
        check_tool_settings(check, node)
    told = len(check.problems)
    kind = check.kind_of_type(node.result)
    del check.problems[told:]
    check_function_body(check, node.parameters, node.body, kind)


def _check_top_only(check: ModuleCheck, node: ast.Statement) -> None:
    if check.scope is not check.top:
        end = node.at + len(check.source.text[node.at :].split(maxsplit=1)[0])
        check.error(node.at, end, f"{_ONLY_TOP[type(node)]} is declared at the top level")


def check_bodies(check: ModuleCheck, statements: Sequence[ast.Statement]) -> None:
    """Check the insides of the top level's declarations."""
    for node in statements:
        if isinstance(node, (ast.Function, ast.Tool)):
            _check_declared_body(check, node)
        elif isinstance(node, ast.Agent):
            check_agent_settings(check, node)
            seen: set[str] = set()
            for tool in node.tools:
                if tool.name in seen:
                    offset, end = check.name_place(tool, tool.name)
                    check.error(offset, end, f"two tools of `{node.name}` are called `{tool.name}`")
                seen.add(tool.name)
                check.signature(tool.parameters, tool.result)
                _check_declared_body(check, tool)
        elif isinstance(node, ast.Supervisor):
            _check_supervisor(check, node)
        elif isinstance(node, ast.Test):
            check.context = CheckContext(in_test=True)
            check_block(check, node.body)
            check.context = CheckContext()


def _check_supervisor(check: ModuleCheck, node: ast.Supervisor) -> None:
    check_supervision(check, node.settings, node.places)
    seen: set[str] = set()
    for child in node.children:
        if child.name in seen:
            check.error(child.at, child.end, f"two children are called `{child.name}`")
        seen.add(child.name)
        check_spawn_target(check, child.target, is_function=child.is_function)
    if not node.children:
        offset, end = check.name_place(node, node.name)
        check.warn(offset, end, f"`{node.name}` has no children", "add `child name = Agent`")


_CHECKS: Final[dict[type, Callable[[ModuleCheck, Any], None]]] = {
    ast.Let: _check_let,
    ast.Const: _check_const,
    ast.Assign: _check_assign,
    ast.ExpressionStatement: _check_expression,
    ast.Return: _check_return,
    ast.Break: _check_jump,
    ast.Continue: _check_jump,
    ast.Throw: _check_throw,
    ast.If: _check_if,
    ast.While: _check_while,
    ast.For: _check_for,
    ast.ForIn: _check_for_in,
    ast.Block: check_block,
    ast.Try: _check_try,
    ast.Parallel: _check_parallel,
    ast.Session: _check_session,
    ast.Defer: lambda check, node: _check_block_within(check, node.body, in_defer=True, in_loop=False),
    ast.Mock: _check_mock,
    ast.Function: _check_function,
    ast.Agent: _check_top_only,
    ast.Supervisor: _check_top_only,
    ast.Import: _check_top_only,
    ast.Tool: _check_top_only,
    ast.Test: _check_top_only,
}


RULES: Final = CheckRules({**KINDS, **PROCESS_KINDS}, check_block)
_IMPORTS_DEEP_MAX: Final = 30  # imports of imports of …; what lies deeper is taken on trust

# The target as written and the name of the importing file → the imported file's name and text, or None. A host that
# can read nodes answers the target of an `import node` with a NodeFile.
Load: TypeAlias = Callable[[str, str], "tuple[str, str] | None"]


def check_source(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> list[Diagnostic]:
    """Everything there is to say about a source, in order of place; empty for a good one. `host_names` are functions
    that the host of the program provides."""
    source = Source(name, text)
    module, problems, _ = parse_all(source)
    return problems or check_module(module, source, load=load, host_names=host_names)


def parse_and_check(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> Module:
    """Return the tree of a good source; ParseError or CheckError with everything in `fields["problems"]` for
    another."""
    source = Source(name, text)
    module, problems, _ = parse_all(source)
    if problems:
        raise source_error(ParseError, problems)
    problems = check_module(module, source, load=load, host_names=host_names)
    if any(problem.is_error for problem in problems):
        raise source_error(CheckError, problems)
    return module


def check_module(
    module: Module, source: Source, *, load: Load | None = None, host_names: Collection[str] = ()
) -> list[Diagnostic]:
    checker = Checker(source, load, {source.name: {}}, host_names)
    return checker.run(module.statements)


def kind_of_variable(text: str, name: str) -> str:
    """Return the kind that the checker gives a variable at the top level of a source; `any` where it cannot know."""
    source = Source("<vega>", text)
    checker = Checker(source, None, {source.name: {}}, ())
    checker.run(parse_all(source).module.statements)
    binding = checker.check.top.names.get(name)
    return "any" if binding is None else str(binding.kind)


class Checker:
    """Checks one file, and the files that it imports, each with its own Checker."""

    def __init__(
        self, source: Source, load: Load | None, files: dict[str, dict[str, Binding]], host_names: Collection[str]
    ) -> None:
        self.source = source
        self.check = ModuleCheck(source, host_names, RULES, self.resolve_import)
        self.host_names = host_names
        self.load = load
        self.files = files  # what each imported file declares; one that is being looked at right now is there, empty
        self.others: list[Diagnostic] = []  # errors in imported files
        self.depth = 0  # of this file in the imports

    def run(self, statements: Sequence[Statement]) -> list[Diagnostic]:
        check = self.check
        check.assigned, check.changed, check.thrown = names_in_use(statements)
        try:
            check_statements(check, statements)
            check.scope = check.top
            check_bodies(check, statements)
        except RecursionError:  # the parser bounds the depth, so the caller's own stack was deep already
            check.error(0, 1, "this is nested too deeply to be checked")
        distinct: dict[tuple[int, str], Diagnostic] = {}
        for problem in sorted(check.problems, key=lambda problem: problem.at):
            distinct.setdefault((problem.at, problem.message), problem)
        return [*list(distinct.values())[:VEGA_PROBLEMS_MAX], *self.others]

    def resolve_import(self, node: Import) -> Binding:
        """Return the binding of an import's name; a file that cannot be found is reported."""
        if node.kind not in ("vega", "node"):
            return Binding("import", ANY)
        if self.load is None or self.depth >= _IMPORTS_DEEP_MAX:
            return Binding("import", ANY, members=None)
        loaded = self.load(node.target, self.source.name)
        if loaded is None:
            self._wrong_target(node, f"cannot find `{node.target}`", "a path is relative to this file")
            return Binding("import", ANY, members=None)
        if node.kind == "node":
            self.check.has_foreign_errors = True
            return self._node_binding(node, loaded)
        name, text = loaded
        if name in self.files:  # seen before, or a circle: then the Checker of that file fills its names in
            return Binding("import", ANY, members=self.files[name] or None)
        return Binding("import", ANY, members=self.check_import(Source(name, text)))

    def _node_binding(self, node: Import, loaded: tuple[str, str]) -> Binding:
        """Bind an imported node as a function of its inputs; one that the host does not read is taken on trust."""
        if not isinstance(loaded, NodeFile):
            return Binding("import", ANY)
        if loaded.node is None:
            self._wrong_target(node, f"`{node.target}` is no node: {loaded.problem}", f"vesper validate {loaded[0]}")
            return Binding("import", ANY)
        return binding_of_node(loaded.node)

    def _wrong_target(self, node: Import, message: str, hint: str) -> None:
        offset = self.source.text.find('"', node.at)
        self.check.error(offset, offset + len(node.target) + 2, message, hint)

    def check_import(self, source: Source) -> dict[str, Binding] | None:
        """Return the names that an imported file declares; None if it cannot be parsed. Its errors are reported with
        the others."""
        members = self.files[source.name] = {}
        module, problems, _ = parse_all(source)
        scope: CheckScope | None = None
        if not problems:
            checker = Checker(source, self.load, self.files, self.host_names)
            checker.depth = self.depth + 1
            problems = checker.run(module.statements)
            scope = checker.check.top
            self.check.thrown |= checker.check.thrown
            self.check.has_foreign_tools |= checker.check.has_foreign_tools
            self.check.has_foreign_errors |= checker.check.has_foreign_errors
        self.others += [problem for problem in problems if problem.is_error]
        if scope is None:
            return None
        members.update({key: binding for key, binding in scope.names.items() if binding.role != "import"})
        return members


# ---------------- Imported nodes in the checker: a node is a function of its inputs that gives a record of its outputs
# Its parameters are the inputs in their order. A `decimal` takes an int, a float, a text or money; as an output it is a
# text, since no other kind of Vega holds it exactly.


def binding_of_node(node: ImportedNode) -> Binding:
    """Return what the name of an imported node represents."""
    signature = Signature(
        tuple((entry.name, _kind(entry.kind)) for entry in node.inputs),
        frozenset(entry.name for entry in node.inputs if not entry.is_required),
        _kind(node.outputs),
    )
    return Binding("import", ValueKind("function"), signature)


def node_heading(name: str, node: ImportedNode) -> str:
    """`charge(amount: decimal, note?: str) -> {receipt: str}`, for editors."""
    parts = [f"{entry.name}{'' if entry.is_required else '?'}: {_kind(entry.kind)}" for entry in node.inputs]
    return f"{name}({', '.join(parts)}) -> {_kind(node.outputs)}"


def _kind(kind: NodeValueKind) -> ValueKind:
    return ValueKind(
        kind.name, tuple(_kind(inner) for inner in kind.inner), tuple((name, _kind(part)) for name, part in kind.fields)
    )
