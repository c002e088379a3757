"""The tree of a Vega program: what the parser makes, and checker, compiler and formatter read.

Every node knows where it stands: `at` is the offset of its first character in the source, `end` the one after its last.
Expressions, statements, declarations and patterns are four families; a block is a list of statements in the order of
the source. Nothing here is checked beyond its shape: that is the checker's.
"""

from __future__ import annotations

from typing import Any

import msgspec


class SyntaxNode(msgspec.Struct, kw_only=True):
    at: int = 0
    end: int = 0


class Expression(SyntaxNode): ...


class Statement(SyntaxNode): ...


class Pattern(SyntaxNode): ...


class Declaration(Statement): ...


class Type(SyntaxNode):
    """A written type: `str`, `list[int]`, `Result[str, str]`. `name` is the word, `parameters` what is in brackets.

    `fields` is what a record asks for, `{name: str, age: int}`, whose `name` is "map"."""

    name: str
    parameters: list[Type] = []
    fields: dict[str, Type] = {}


# ---------------------------------------------------------------- expressions


class Literal(Expression):
    """null, bool, int, float, str, Money (micro-dollars) or Duration (nanoseconds): see `lyra.vega.values.values`."""

    value: Any


class TypeLiteral(Expression):
    """A type where a value stands: the agent field `output`."""

    type: Type


class Interpolation(Expression):
    """A string with `${…}` in it: texts (as str) and expressions in order."""

    parts: list[str | Expression]


class Name(Expression):
    name: str


class Path(Expression):
    """`module::name`: of the standard library or of an import."""

    module: str
    name: str


class ListLiteral(Expression):
    items: list[Expression]


class MapLiteral(Expression):
    entries: list[tuple[Expression, Expression]]


class Lambda(Expression):
    """`|x, y| expr` (then `body` is one Return) or `|x| { … }`."""

    parameters: list[Parameter]
    body: Block


class Unary(Expression):
    """`-` or `!`."""

    operator: str
    operand: Expression


class Binary(Expression):
    """`+ - * / % == != < <= > >= && ||`; the last two do not look at the right side where the left decides."""

    operator: str
    left: Expression
    right: Expression


class Index(Expression):
    """`target[index]`."""

    target: Expression
    index: Expression


class Field(Expression):
    """`target.name`, without a call: a field of a response, a span, a map."""

    target: Expression
    name: str


class Argument(SyntaxNode):
    """One argument of a call; `name` is "" for one by position."""

    value: Expression
    name: str = ""


class Call(Expression):
    """`callee(…)`; `Ok(x)` and `Err(x)` are calls of those names."""

    callee: Expression
    arguments: list[Argument]


class MethodCall(Expression):
    """`target.name(…)`: `.len()`, `.has(x)` and whatever a value of its kind has."""

    target: Expression
    name: str
    arguments: list[Argument]


class Spawn(Expression):
    """`spawn [async] Target [supervised by { … }]`; `target` is a Name or Path of an agent or supervisor, or, with
    `is_function`, a Call of a function (`spawn fn worker(x)`)."""

    target: Expression
    is_async: bool = False
    is_function: bool = False
    supervision: Supervision | None = None


class Supervision(SyntaxNode):
    """The settings of `supervised by { … }`, by name; each an expression. `places`: where each name stands."""

    settings: dict[str, Expression]
    places: dict[str, int] = {}


class Send(Expression):
    """`target <- message [timeout d] [budget m]`, or with `is_stream` `target <~ message`."""

    target: Expression
    message: Expression
    is_stream: bool = False
    timeout: Expression | None = None
    budget: Expression | None = None


class Await(Expression):
    operand: Expression


class Arm(SyntaxNode):
    """`pattern => body` of a match or receive. `body` is a Block; of an expression arm, with `is_value`, it holds one
    ExpressionStatement, whose value is the arm's."""

    pattern: Pattern
    body: Block
    is_value: bool = False


class Match(Expression):
    subject: Expression
    arms: list[Arm]


class Receive(Expression):
    """`receive { pattern => …, after 5s => … }`."""

    arms: list[Arm]
    after: Expression | None = None
    after_body: Arm | None = None


# ---------------------------------------------------------------- patterns


class Wildcard(Pattern): ...


class NamePattern(Pattern):
    name: str


class LiteralPattern(Pattern):
    value: Any


class VariantPattern(Pattern):
    """`Ok(p)` or `Err(p)`."""

    variant: str
    inner: Pattern


class ListPattern(Pattern):
    """`[p, q]`: a list of exactly that many."""

    items: list[Pattern]


# ---------------------------------------------------------------- statements


class Block(Statement):
    """`{ … }`: its own scope."""

    statements: list[Statement]


class Let(Statement):
    name: str
    type: Type | None = None
    value: Expression | None = None


class Assign(Statement):
    """`target = value`, target a Name, Index or Field."""

    target: Expression
    value: Expression


class ExpressionStatement(Statement):
    value: Expression


class If(Statement):
    condition: Expression
    then: Block
    otherwise: Block | If | None = None


class While(Statement):
    condition: Expression
    body: Block


class For(Statement):
    """`for let i = 0; i < n; i = i + 1 { }`; each part may be missing."""

    start: Statement | None
    condition: Expression | None
    step: Statement | None
    body: Block


class ForIn(Statement):
    """`for x in …`: a list, a map's keys, a string's characters, a stream's chunks."""

    name: str
    source: Expression
    body: Block


class Break(Statement): ...


class Continue(Statement): ...


class Return(Statement):
    value: Expression | None = None


class Throw(Statement):
    """`throw "text"` and `throw Name("text")`; `error` is "Error" for the first."""

    value: Expression | None
    error: str = "Error"


class Catch(SyntaxNode):
    """`catch Name(reason) { … }`; `binding` is "" without one."""

    error: str
    binding: str
    body: Block


class Try(Statement):
    body: Block
    catches: list[Catch]
    finally_body: Block | None = None


class Parallel(Statement):
    """`parallel { … }`; the names it binds are seen after it."""

    body: Block


class Session(Statement):
    """`session budget $10.00 { … }`."""

    budget: Expression
    body: Block


class Defer(Statement):
    body: Block


# ---------------------------------------------------------------- declarations


class Parameter(SyntaxNode):
    name: str
    type: Type | None = None
    default: Expression | None = None


class Function(Declaration):
    name: str
    parameters: list[Parameter]
    result: Type | None
    body: Block


class Tool(Declaration):
    """A function that a model may call. `settings`: capabilities, allowed_paths, allowed_commands, description."""

    name: str
    parameters: list[Parameter]
    result: Type | None
    settings: dict[str, Expression]
    body: Block
    places: dict[str, int] = {}


class Agent(Declaration):
    """`fields` by name: literals, lists, calls such as `exponential(100ms, 2.0, 5s)` or `window(10)`, and blocks
    (`retry { … }`) as Supervision-like mappings: a dict of expressions by name."""

    name: str
    fields: dict[str, Expression | dict[str, Expression]]
    places: dict[str, int]  # where each field's name stands; "retry.max_attempts" for one inside a block
    tools: list[Tool]


class Child(SyntaxNode):
    """`child a = fn worker("x")`, `child b = Agent`, `child c = OtherSupervisor`; `target` as in Spawn."""

    name: str
    target: Expression
    is_function: bool = False


class Supervisor(Declaration):
    name: str
    settings: dict[str, Expression]
    children: list[Child]
    places: dict[str, int] = {}


class Const(Declaration):
    name: str
    type: Type | None
    value: Expression


class Import(Declaration):
    """`import "./x.vega" as x`. `kind` is `vega`, `node`, `mcp` (`import tools from mcp "server"`) or `python`."""

    kind: str
    target: str
    name: str


class MockReply(SyntaxNode):
    """`on "pattern" reply "text"`."""

    pattern: str
    reply: Expression


class Mock(Statement):
    """`mock Agent { on … reply … }`, in a test."""

    agent: str
    replies: list[MockReply]


class Test(Declaration):
    """`test "name" { … }`, run by `vega test`."""

    name: str
    body: Block


class Module(SyntaxNode):
    """A whole file. `comments` are (offset, text) of all of them, in order: what the formatter keeps."""

    statements: list[Statement]
    comments: list[tuple[int, str]]
