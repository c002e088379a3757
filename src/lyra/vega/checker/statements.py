"""Checking statements and declarations.

A block's functions are known from its beginning, its variables from their `let` on. The bodies of functions, tools and
tests at the top level come last, since they may use every variable there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lyra.errors import CODES
from lyra.vega.checker.scope import ROLES, Binding, Context, Scope, nearest
from lyra.vega.checker.settings import SettingsChecker
from lyra.vega.checker.types import ANY, STR, Kind, an
from lyra.vega.stdlib.table import ERRORS, GLOBALS
from lyra.vega.syntax.ast import (
    Agent,
    Assign,
    Binary,
    Block,
    Break,
    Const,
    Continue,
    Declaration,
    Defer,
    Expression,
    ExpressionStatement,
    For,
    ForIn,
    Function,
    If,
    Import,
    Lambda,
    Let,
    Mock,
    Name,
    Parallel,
    Return,
    Send,
    Session,
    Statement,
    Supervisor,
    Test,
    Throw,
    Tool,
    Try,
    While,
)
from lyra.vega.syntax.facts import ends
from lyra.vega.syntax.walk import own_parts

__all__ = ["StatementChecker"]

# What `catch` may name without anybody in the program throwing it.
CATCH_NAMES: Final = frozenset({row.catch for row in CODES.values()}) | frozenset(ERRORS)
_ROLES: Final[dict[type, str]] = {
    Function: "function",
    Tool: "tool",
    Agent: "agent",
    Supervisor: "supervisor",
    Import: "import",
}
_ONLY_TOP: Final = {Agent: "an agent", Supervisor: "a supervisor", Import: "an import", Test: "a test", Tool: "a tool"}
_ITERABLE: Final = ("any", "list", "map", "str", "stream")
_ALONE: Final = "what is a whole statement runs beside others: put this into a function and call it here"


def _asks(statement: Statement) -> bool:
    return any(isinstance(part, Send) for part in own_parts(statement))


class StatementChecker(SettingsChecker):
    assigned: frozenset[str] = frozenset()  # names that are assigned to somewhere: what they hold may change
    thrown: frozenset[str] = frozenset()

    def resolve_import(self, node: Import) -> Binding:
        raise NotImplementedError

    # ---------------------------------------------------------------- blocks

    def block(self, block: Block, scope: Scope | None = None) -> None:
        outer = self.scope
        self.scope = scope or Scope(outer)
        self.statements(block.statements)
        self.scope = outer

    def statements(self, statements: Sequence[Statement]) -> None:
        self.hoist(statements)
        ended, told = False, False
        for statement in statements:
            if ended and not told and not isinstance(statement, Declaration):
                self.warn(statement.at, statement.end, "this is never reached")
                told = True
            _CHECKS[type(statement)](self, statement)
            ended = ended or ends(statement)

    def hoist(self, statements: Sequence[Statement]) -> None:
        """Make the declarations of a block known before its statements are looked at."""
        self.agents.update(statement.name for statement in statements if isinstance(statement, Agent))
        for statement in statements:
            role = _ROLES.get(type(statement))
            if role is None:
                continue
            if isinstance(statement, Import):
                if statement.name:
                    self.declare(statement, statement.name, self.resolve_import(statement))
                self.has_foreign_tools = self.has_foreign_tools or statement.kind == "mcp"
            elif isinstance(statement, (Function, Tool)):
                signature = self.signature(statement.parameters, statement.result)
                self.declare(statement, statement.name, Binding(role, Kind("function"), signature))
            elif isinstance(statement, (Agent, Supervisor)):
                self.declare(statement, statement.name, Binding(role))

    def _within(self, block: Block, scope: Scope | None = None, **changes: Any) -> None:
        """A block in a changed context."""
        context = self.context
        self.context = msgspec.structs.replace(context, **changes)
        self.block(block, scope)
        self.context = context

    def condition(self, node: Expression, word: str) -> None:
        kind = self.kind(node)
        if kind.name not in ("any", "bool"):
            self.fault(node, f"the condition of `{word}` is a bool, not {an(kind)}")

    # ---------------------------------------------------------------- values

    def _let(self, node: Let) -> None:
        calls_itself = isinstance(node.value, Lambda) and self.scope.find(node.name) is None
        if calls_itself:  # by the name that will hold it
            self.scope.names[node.name] = Binding("variable")
        kind = self.kind(node.value) if node.value is not None else Kind("null")
        if calls_itself:
            del self.scope.names[node.name]
        if node.type is not None:
            declared = self.kind_of_type(node.type)
            if node.value is not None:
                self.wanted(node.value, declared, kind, f"`{node.name}`")
            binding = Binding("variable", declared, is_declared=True)
        elif node.name in self.assigned or kind.name == "null":  # one that is null is asked before it is used
            binding = Binding("variable")
        else:
            # What a list or map holds may change without an assignment, so only that it is one is kept.
            binding = Binding("variable", Kind(kind.name))
        if isinstance(node.value, Lambda) and node.name not in self.assigned:
            binding.signature = self.signature(node.value.parameters, None)  # it holds this function for good
        self.declare(node, node.name, binding)

    def _const(self, node: Const) -> None:
        kind = self.kind(node.value)
        declared = self.kind_of_type(node.type)
        self.wanted(node.value, declared, kind, f"`{node.name}`")
        self.declare(node, node.name, Binding("constant", declared if node.type is not None else Kind(kind.name)))

    def _assign(self, node: Assign) -> None:
        kind = self.kind(node.value)
        target = node.target
        if not isinstance(target, Name):
            wanted = self.kind(target)
            self.wanted(node.value, wanted, kind, "what is stored here")
            return
        binding = self.scope.find(target.name)
        if binding is None and target.name in GLOBALS:
            hint = f"a variable of your own is `let {target.name} = …`"
            self.error_on(target, f"`{target.name}` is a function of the library and cannot be assigned to", hint)
        elif binding is None:
            self.unknown(target, target.name, f"a new variable is `let {target.name} = …`")
        elif binding.role != "variable":
            self.error_on(target, f"`{target.name}` is {ROLES[binding.role]} and cannot be assigned to")
        elif binding.is_declared:
            self.wanted(node.value, binding.kind, kind, f"`{target.name}`")

    def _expression(self, node: ExpressionStatement) -> None:
        self.kind(node.value)
        if isinstance(node.value, Binary) and node.value.operator == "==":
            self.warn(
                node.value.at, node.value.end, "this compares, and nothing uses the answer", "to assign write `=`"
            )

    def _return(self, node: Return) -> None:
        kind = self.kind(node.value) if node.value is not None else Kind("null")
        if self.context.in_defer:
            self.error(node.at, node.at + 6, "`return` cannot stand in `defer`", "the function has returned already")
        elif not self.context.in_function:
            self.error(
                node.at, node.at + 6, "`return` stands outside a function", "to end the program: `process::exit()`"
            )
        elif node.value is not None:
            self.wanted(node.value, self.context.result, kind, "what this function gives")

    def _jump(self, node: Break | Continue) -> None:
        word = "break" if isinstance(node, Break) else "continue"
        if not self.context.in_loop:
            self.error(node.at, node.at + len(word), f"`{word}` stands outside a loop")

    def _throw(self, node: Throw) -> None:
        if node.value is not None:
            self.kind(node.value)

    # ---------------------------------------------------------------- branches and loops

    def _if(self, node: If) -> None:
        step: Block | If | None = node
        while isinstance(step, If):
            self.condition(step.condition, "if")
            self.block(step.then)
            step = step.otherwise
        if step is not None:
            self.block(step)

    def _while(self, node: While) -> None:
        self.condition(node.condition, "while")
        self._within(node.body, in_loop=True)

    def _for(self, node: For) -> None:
        outer = self.scope
        self.scope = Scope(outer)
        start = node.start
        if isinstance(start, Assign) and isinstance(start.target, Name) and self.scope.find(start.target.name) is None:
            self._let(Let(start.target.name, None, start.value, at=start.at, end=start.end))  # the loop's own
        elif start is not None:
            _CHECKS[type(start)](self, start)
        if node.condition is not None:
            self.condition(node.condition, "for")
        if node.step is not None:
            _CHECKS[type(node.step)](self, node.step)
        self._within(node.body, in_loop=True)
        self.scope = outer

    def _for_in(self, node: ForIn) -> None:
        kind = self.kind(node.source)
        if kind.name not in _ITERABLE:
            hint = "count with `for let i = 0; i < n; i = i + 1 {`" if kind.name == "int" else None
            self.fault(node.source, f"{an(kind)} has no items to go through", hint)
        inner = kind.inner[0] if kind.name == "list" and kind.inner else ANY
        scope = Scope(self.scope)
        scope.names[node.name] = Binding("variable", STR if kind.name == "str" else inner)
        if node.name in self.assigned:
            scope.names[node.name] = Binding("variable")
        self._within(node.body, scope, in_loop=True)

    # ---------------------------------------------------------------- scopes

    def _try(self, node: Try) -> None:
        self._within(node.body, in_try=self.context.in_try or bool(node.catches))
        seen: set[str] = set()
        for catch in node.catches:
            at = self.source.text.find(catch.error, catch.at + len("catch"))
            end = at + len(catch.error)
            if catch.error in seen or "Error" in seen:
                self.warn(at, end, "this `catch` is never reached", "one above it takes the same errors")
            elif catch.error not in CATCH_NAMES and catch.error not in self.thrown:
                near = nearest(catch.error, CATCH_NAMES | self.thrown)
                hint = f"did you mean `{near}`?" if near else "nothing here throws it"
                self.warn(at, end, f"no error is called `{catch.error}`", hint)
            seen.add(catch.error)
            scope = Scope(self.scope)
            if catch.binding:
                scope.names[catch.binding] = Binding("variable", ANY if catch.binding in self.assigned else STR)
            self.block(catch.body, scope)
        if node.finally_body is not None:
            self.block(node.finally_body)

    def _parallel(self, node: Parallel) -> None:
        """Its names are seen after it, so it has no scope of its own."""
        self.statements(node.body.statements)
        asking = [each for each in node.body.statements if _asks(each)]
        for statement in asking[:-1]:  # nothing waits for the last
            if not isinstance(getattr(statement, "value", None), Send):
                self.warn(statement.at, statement.end, "what follows in `parallel` waits for this statement", _ALONE)

    def _session(self, node: Session) -> None:
        self.wanted(node.budget, Kind("money"), self.kind(node.budget), "the budget of a session")
        self.block(node.body)

    def _defer(self, node: Defer) -> None:
        self._within(node.body, in_defer=True, in_loop=False)

    def _mock(self, node: Mock) -> None:
        at, end = self.name_place(node, node.agent)
        binding = self.scope.find(node.agent)
        if not self.context.in_test:
            self.error(node.at, node.at + len("mock"), "`mock` stands outside a test")
        if binding is None or binding.role != "agent":
            near = nearest(node.agent, self.agents)
            self.error(at, end, f"unknown agent `{node.agent}`", f"did you mean `{near}`?" if near else None)
        for reply in node.replies:
            self.kind(reply.reply)

    # ---------------------------------------------------------------- declarations

    def _function(self, node: Function) -> None:
        if self.scope is not self.top:
            self._function_body(node)

    def _function_body(self, node: Function | Tool) -> None:
        if isinstance(node, Tool):
            self.tool_settings(node)
        self.function_body(node.parameters, node.body, self.kind_of_type_again(node))

    def kind_of_type_again(self, node: Function | Tool) -> Kind:
        """What it gives; a wrong type was told when its name was made known."""
        told = len(self.problems)
        kind = self.kind_of_type(node.result)
        del self.problems[told:]
        return kind

    def _top_only(self, node: Statement) -> None:
        if self.scope is not self.top:
            end = node.at + len(self.source.text[node.at :].split(maxsplit=1)[0])
            self.error(node.at, end, f"{_ONLY_TOP[type(node)]} is declared at the top level")

    def bodies(self, statements: Sequence[Statement]) -> None:
        """The insides of the top level's declarations."""
        for node in statements:
            if isinstance(node, (Function, Tool)):
                self._function_body(node)
            elif isinstance(node, Agent):
                self.agent(node)
                self._agent_tools(node)
            elif isinstance(node, Supervisor):
                self._supervisor(node)
            elif isinstance(node, Test):
                self.context = Context(in_test=True)
                self.block(node.body)
                self.context = Context()

    def _agent_tools(self, agent: Agent) -> None:
        seen: set[str] = set()
        for tool in agent.tools:
            if tool.name in seen:
                at, end = self.name_place(tool, tool.name)
                self.error(at, end, f"two tools of `{agent.name}` are called `{tool.name}`")
            seen.add(tool.name)
            self.signature(tool.parameters, tool.result)
            self._function_body(tool)

    def _supervisor(self, node: Supervisor) -> None:
        self.supervision(node.settings, node.places)
        seen: set[str] = set()
        for child in node.children:
            if child.name in seen:
                self.error(child.at, child.end, f"two children are called `{child.name}`")
            seen.add(child.name)
            self.target(child.target, is_function=child.is_function)
        if not node.children:
            at, end = self.name_place(node, node.name)
            self.warn(at, end, f"`{node.name}` has no children", "add `child name = Agent`")


_CHECKS: Final[dict[type, Callable[[Any, Any], None]]] = {
    Let: StatementChecker._let,
    Const: StatementChecker._const,
    Assign: StatementChecker._assign,
    ExpressionStatement: StatementChecker._expression,
    Return: StatementChecker._return,
    Break: StatementChecker._jump,
    Continue: StatementChecker._jump,
    Throw: StatementChecker._throw,
    If: StatementChecker._if,
    While: StatementChecker._while,
    For: StatementChecker._for,
    ForIn: StatementChecker._for_in,
    Block: StatementChecker.block,
    Try: StatementChecker._try,
    Parallel: StatementChecker._parallel,
    Session: StatementChecker._session,
    Defer: StatementChecker._defer,
    Mock: StatementChecker._mock,
    Function: StatementChecker._function,
    Agent: StatementChecker._top_only,
    Supervisor: StatementChecker._top_only,
    Import: StatementChecker._top_only,
    Tool: StatementChecker._top_only,
    Test: StatementChecker._top_only,
}
