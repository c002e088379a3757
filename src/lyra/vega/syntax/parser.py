"""From a source to its tree: `parse`.

The parser is functions over one `Cursor`, which holds the tokens, the place in them and the mistakes so far. They are
in `expressions`, `patterns` and, for statements, blocks and declarations, here; each file builds on those before it. A
statement has one function, found by the keyword that begins it. A rule that leads back up (a lambda holds a block) goes
through the cursor's `Grammar`, which is put together here. The parser knows the shape of a program only; the checker
knows names and types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from lyra.core.limits import VEGA_NESTING_MAX, VEGA_PROBLEMS_MAX, VEGA_SOURCE_CHARS_MAX
from lyra.errors import ParseError
from lyra.vega.syntax import ast
from lyra.vega.syntax.cursor import Cursor, Grammar, Stop
from lyra.vega.syntax.expressions import (
    EXPRESSIONS,
    parse_expression,
    parse_parameters,
    parse_settings,
    parse_target,
    parse_type,
)
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.patterns import MATCHES, parse_jump, parse_match, parse_receive, parse_simple
from lyra.vega.syntax.source import Diagnostic, Source, source_error

# Behind a name these can only mean that the name was to be a keyword.
_NO_CONTINUATION: Final = frozenset({"name", "string", "template", "int", "float", "money", "duration", "true", "null"})


def parse_block(cursor: Cursor, what: str) -> ast.Block:
    offset = cursor.open_brace(what)
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    statements: list[ast.Statement] = []
    parse_statements(cursor, statements)
    if cursor.kinds[cursor.i] == "end":
        cursor.fail_unclosed()
    cursor.close_brace("after the block")
    cursor.depth -= 1
    return ast.Block(statements, at=offset, end=cursor.ends[cursor.i - 1])


def parse_statements(cursor: Cursor, statements: list[ast.Statement]) -> None:
    """All statements up to a `}` or the end; one that is wrong is left out."""
    rules, kinds, depth, braces = cursor.grammar.statements, cursor.kinds, cursor.depth, len(cursor.braces)
    while (kind := kinds[cursor.i]) != "}" and kind != "end":
        if kind == ";":  # a statement that is not there
            cursor.i += 1
            continue
        start = cursor.i
        try:
            statements.append(rules.get(kind, _parse_unkeyed)(cursor))
        except Stop:
            cursor.depth = depth
            cursor.recover(start, braces)


# ---------------------------------------------------------------- without a keyword


def _parse_unkeyed(cursor: Cursor) -> ast.Statement:
    i, offset = cursor.i, cursor.starts[cursor.i]
    if cursor.kinds[i] == "name" and cursor.kinds[i + 1] in _NO_CONTINUATION:
        if cursor.values[i] == "test" and cursor.kinds[i + 1] == "string":
            return cursor.grammar.statements["test"](cursor)
        if cursor.values[i] == "mock" and cursor.kinds[i + 2] == "{":
            return _parse_mock(cursor)
        hint = cursor.word_hint()
        if hint is not None:
            cursor.fail_here(f"`{cursor.values[i]}` begins no statement", hint)
    statement = parse_simple(cursor)
    if isinstance(statement, ast.ExpressionStatement) and isinstance(statement.value, (ast.Match, ast.Receive)):
        cursor.take(";")
    else:
        cursor.semicolon("this assignment" if isinstance(statement, ast.Assign) else "this expression")
    statement.at, statement.end = offset, cursor.ends[cursor.i - 1]
    return statement


def _parse_match_statement(cursor: Cursor) -> ast.Statement:
    """As a statement it ends with its `}`, whatever follows."""
    offset = cursor.starts[cursor.i]
    value = parse_match(cursor) if cursor.kinds[cursor.i] == "match" else parse_receive(cursor)
    cursor.take(";")
    return ast.ExpressionStatement(value, at=offset, end=cursor.ends[cursor.i - 1])


# ---------------------------------------------------------------- values and jumps


def _parse_let(cursor: Cursor) -> ast.Statement:
    statement = _parse_let_open(cursor)
    cursor.semicolon("this `let`")
    statement.end = cursor.ends[cursor.i - 1]
    return statement


def _parse_let_open(cursor: Cursor) -> ast.Let:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    if cursor.kinds[cursor.i] in ("[", "{"):
        cursor.fail_here("`let` declares one name", "to take a list apart: `match list { [a, b] => … }`")
    name = cursor.name("the name of a variable")
    kind = parse_type(cursor) if cursor.take(":") else None
    value = parse_expression(cursor) if cursor.take("=") else None
    return ast.Let(name, kind, value, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_jump_statement(cursor: Cursor) -> ast.Statement:
    word = cursor.kinds[cursor.i]
    statement = parse_jump(cursor)
    cursor.semicolon(f"`{word}`" if word in ("break", "continue") else f"this `{word}`")
    statement.end = cursor.ends[cursor.i - 1]
    return statement


# ---------------------------------------------------------------- branches and loops


def _parse_if(cursor: Cursor) -> ast.Statement:
    chain: list[tuple[int, ast.Expression, ast.Block]] = []
    last: ast.Block | ast.If | None = None
    while True:
        offset = cursor.starts[cursor.i]
        cursor.i += 1
        condition = _parse_condition(cursor, "if")
        chain.append((offset, condition, parse_block(cursor, "after the condition of `if`")))
        if not cursor.take("else"):
            break
        if cursor.kinds[cursor.i] != "if":
            last = parse_block(cursor, "after `else`")
            break
    end = cursor.ends[cursor.i - 1]
    for offset, condition, then in reversed(chain):
        last = ast.If(condition, then, last, at=offset, end=end)
    assert isinstance(last, ast.If)
    return last


def _parse_condition(cursor: Cursor, word: str) -> ast.Expression:
    if cursor.kinds[cursor.i] == "{" and not cursor.is_map():
        cursor.fail_here(f"`{word}` has no condition")
    condition = parse_expression(cursor)
    if cursor.kinds[cursor.i] == "=":
        cursor.fail_here("a condition cannot assign", "equality is `==`")
    return condition


def _parse_while(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    condition = _parse_condition(cursor, "while")
    body = parse_block(cursor, "after the condition of `while`")
    return ast.While(condition, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_for(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    i = cursor.i
    if cursor.kinds[i] == "name" and cursor.kinds[i + 1] == "name" and cursor.values[i + 1] == "in":
        cursor.i = i + 2
        source = parse_expression(cursor)
        body = parse_block(cursor, "after the head of `for`")
        return ast.ForIn(cursor.values[i], source, body, at=offset, end=cursor.ends[cursor.i - 1])
    if cursor.kinds[i] == "(" and (cursor.kinds[i + 1] in ("let", ";") or cursor.kinds[i + 2] in ("name", "=")):
        hint = "write `for x in list {` or `for let i = 0; i < n; i = i + 1 {`"
        cursor.note(cursor.starts[cursor.i], cursor.ends[cursor.i], "`for` takes no parentheses", hint)
        while cursor.kinds[cursor.i] not in ("{", "}", "end"):
            cursor.i += 1
        return ast.For(
            None, None, None, parse_block(cursor, "after the head of `for`"), at=offset, end=cursor.ends[cursor.i - 1]
        )
    start: ast.Statement | None = None
    if cursor.kinds[i] == "let":
        start = _parse_let_open(cursor)
    elif cursor.kinds[i] != ";":
        start = parse_simple(cursor)
    if cursor.is_word("in"):
        cursor.fail_here("`for` binds one plain name", "write `for x in list {`")
    cursor.expect(";", "after the start of `for`")
    condition = None if cursor.kinds[cursor.i] == ";" else _parse_condition(cursor, "for")
    cursor.expect(";", "after the condition of `for`")
    step = None if cursor.kinds[cursor.i] == "{" else parse_simple(cursor)
    body = parse_block(cursor, "after the head of `for`")
    return ast.For(start, condition, step, body, at=offset, end=cursor.ends[cursor.i - 1])


# ---------------------------------------------------------------- scopes


def _parse_try(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    body = parse_block(cursor, "after `try`")
    catches: list[ast.Catch] = []
    while cursor.kinds[cursor.i] == "catch":
        catches.append(_parse_catch(cursor))
    finally_body = parse_block(cursor, "after `finally`") if cursor.take("finally") else None
    if not catches and finally_body is None:
        cursor.note(
            offset, offset + 3, "this `try` has neither `catch` nor `finally`", "add `catch Error(reason) { … }`"
        )
    return ast.Try(body, catches, finally_body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_catch(cursor: Cursor) -> ast.Catch:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    if cursor.kinds[cursor.i] in ("(", "{"):
        cursor.fail_here("`catch` needs the name of an error", "every error: `catch Error(reason) { … }`")
    error, binding = cursor.name("the name of an error"), ""
    if cursor.kinds[cursor.i] == "(":
        opened = cursor.starts[cursor.i]
        cursor.i += 1
        binding = cursor.name("the name for the reason")
        cursor.close(")", opened, "after the name")
    body = parse_block(cursor, "after `catch`")
    return ast.Catch(error, binding, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_parallel(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    return ast.Parallel(parse_block(cursor, "after `parallel`"), at=offset, end=cursor.ends[cursor.i - 1])


def _parse_defer(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    return ast.Defer(parse_block(cursor, "after `defer`"), at=offset, end=cursor.ends[cursor.i - 1])


def _parse_session(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    if not cursor.is_word("budget"):
        cursor.fail_expected("`budget`", where="after `session`", hint="write `session budget $10.00 {`")
    cursor.i += 1
    budget = parse_expression(cursor)
    body = parse_block(cursor, "after the budget")
    return ast.Session(budget, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_mock(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    agent = cursor.values[cursor.i]
    if cursor.kinds[cursor.i] not in ("name", "string"):
        cursor.fail_expected("the name of an agent", where="after `mock`")
    cursor.i += 1
    cursor.open_brace("after the agent")
    replies: list[ast.MockReply] = []
    while cursor.kinds[cursor.i] != "}":
        start = cursor.starts[cursor.i]
        if not cursor.is_word("on"):
            cursor.fail_expected("`on`", where="in `mock`", hint='write `on "pattern" reply "text"`')
        cursor.i += 1
        if cursor.kinds[cursor.i] != "string":
            cursor.fail_expected("a string", where="after `on`")
        pattern = cursor.values[cursor.i]
        cursor.i += 1
        if not cursor.is_word("reply"):
            cursor.fail_expected("`reply`", where="after the pattern")
        cursor.i += 1
        reply = parse_expression(cursor)
        replies.append(ast.MockReply(pattern, reply, at=start, end=cursor.ends[cursor.i - 1]))
        while cursor.kinds[cursor.i] in (",", ";"):
            cursor.i += 1
    cursor.close_brace("after the replies")
    return ast.Mock(agent, replies, at=offset, end=cursor.ends[cursor.i - 1])


def _fail_stray(cursor: Cursor) -> ast.Statement:
    word = cursor.kinds[cursor.i]
    owner = {"else": "if", "catch": "try", "finally": "try"}[word]
    cursor.fail_here(f"this `{word}` belongs to no `{owner}`")


# The first token of a statement → its rule; a token that is not here begins an expression or an assignment.
STATEMENTS: Final[dict[str, Callable[[Cursor], ast.Statement]]] = {
    "name": _parse_unkeyed,
    "let": _parse_let,
    "if": _parse_if,
    "while": _parse_while,
    "for": _parse_for,
    "match": _parse_match_statement,
    "receive": _parse_match_statement,
    "break": _parse_jump_statement,
    "continue": _parse_jump_statement,
    "return": _parse_jump_statement,
    "throw": _parse_jump_statement,
    "try": _parse_try,
    "{": lambda cursor: parse_block(cursor, ""),
    "parallel": _parse_parallel,
    "session": _parse_session,
    "defer": _parse_defer,
    "else": _fail_stray,
    "catch": _fail_stray,
    "finally": _fail_stray,
}


# ---------------- Declarations: functions, tools, agents, supervisors, constants, imports and tests

_STEM = re.compile(r"([^\W\d]\w*)(?:\.\w+)?\Z")


def _parse_head(cursor: Cursor, what: str) -> tuple[str, list[ast.Parameter], ast.Type | None]:
    name = cursor.name(f"the name of a {what}")
    cursor.expect("(", f"after the {what}'s name")
    parameters = parse_parameters(cursor, ")")
    return name, parameters, parse_type(cursor) if cursor.take("->") else None


def _parse_function(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name, parameters, result = _parse_head(cursor, "function")
    if cursor.kinds[cursor.i] == ":":
        cursor.fail_here("write the return type after `->`", f"write `fn {name}(…) -> type {{`")
    body = parse_block(cursor, "before the body of the function")
    return ast.Function(name, parameters, result, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_tool(cursor: Cursor) -> ast.Tool:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name, parameters, result = _parse_head(cursor, "tool")
    settings, places = parse_settings(cursor, "{")
    body = parse_block(cursor, "before the body of the tool")
    return ast.Tool(name, parameters, result, settings, body, places, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_agent(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name = cursor.name("the name of an agent")
    cursor.open_brace("after the agent's name")
    agent = ast.Agent(name, {}, {}, [], at=offset)
    depth, braces = cursor.depth, len(cursor.braces)
    while cursor.kinds[cursor.i] != "}":
        if cursor.kinds[cursor.i] == "end":
            cursor.fail_unclosed()
        try:
            _parse_agent_part(cursor, agent)
        except Stop:
            cursor.depth = depth
            _recover_field(cursor, braces)
    cursor.close_brace("after the agent")
    agent.end = cursor.ends[cursor.i - 1]
    return agent


def _parse_agent_part(cursor: Cursor, agent: ast.Agent) -> None:
    if cursor.kinds[cursor.i] == "tool":
        agent.tools.append(_parse_tool(cursor))
        return
    place = cursor.starts[cursor.i]
    name = cursor.any_word("a field of the agent")
    if name in agent.fields:
        cursor.note(place, cursor.ends[cursor.i - 1], f"`{name}` is given twice")
    if name == "output":
        start = cursor.starts[cursor.i]
        value: ast.Expression | dict[str, ast.Expression] = ast.TypeLiteral(
            parse_type(cursor), at=start, end=cursor.ends[cursor.i - 1]
        )
    elif cursor.kinds[cursor.i] == "{" and not cursor.is_map():
        cursor.open_brace("")
        value, places = parse_settings(cursor, "}")
        cursor.close_brace(f"after the settings of `{name}`")
        agent.places.update({f"{name}.{setting}": where for setting, where in places.items()})
    else:
        if cursor.kinds[cursor.i] in (":", "="):
            cursor.fail_here(f"a field is written without `{cursor.kinds[cursor.i]}`", f'such as `{name} "…"`')
        value = parse_expression(cursor)
    agent.fields[name] = value
    agent.places[name] = place
    while cursor.kinds[cursor.i] in (",", ";"):
        cursor.i += 1


def _recover_field(cursor: Cursor, braces: int) -> None:
    """Skip a wrong field: to the next line of the agent, to its `}`, or to a tool."""
    inner = max(0, len(cursor.braces) - braces)
    del cursor.braces[braces:]
    while (kind := cursor.kinds[cursor.i]) != "end" and not (inner == 0 and kind == "}"):
        inner += (kind == "{") - (kind == "}")
        cursor.i += 1
        if inner == 0 and (
            cursor.kinds[cursor.i] == "tool" or (cursor.kinds[cursor.i] == "name" and cursor.begins_line())
        ):
            return


def _parse_supervisor(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name = cursor.name("the name of a supervisor")
    cursor.open_brace("after the supervisor's name")
    settings: dict[str, ast.Expression] = {}
    places: dict[str, int] = {}
    children: list[ast.Child] = []
    while cursor.kinds[cursor.i] not in ("}", "end"):
        if cursor.is_word("child") and cursor.kinds[cursor.i + 2] == "=":
            children.append(_parse_child(cursor))
            continue
        place = cursor.starts[cursor.i]
        setting = cursor.any_word("a setting or `child name = …`")
        if setting in settings:
            cursor.note(place, cursor.ends[cursor.i - 1], f"`{setting}` is given twice")
        settings[setting] = parse_expression(cursor)
        places[setting] = place
        while cursor.kinds[cursor.i] in (",", ";"):
            cursor.i += 1
    cursor.close_brace("after the children")
    return ast.Supervisor(name, settings, children, places, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_child(cursor: Cursor) -> ast.Child:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name = cursor.name("the name of a child")
    cursor.expect("=", "after the child's name")
    is_function = cursor.kinds[cursor.i] == "fn"
    target = parse_target(cursor, "child")
    end = cursor.ends[cursor.i - 1]
    while cursor.kinds[cursor.i] in (",", ";"):
        cursor.i += 1
    return ast.Child(name, target, is_function, at=offset, end=end)


def _parse_const(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    name = cursor.name("the name of a constant")
    kind = parse_type(cursor) if cursor.take(":") else None
    cursor.expect("=", "after the constant's name", "a constant has a value")
    value = parse_expression(cursor)
    cursor.semicolon("this `const`")
    return ast.Const(name, kind, value, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_import(cursor: Cursor) -> ast.Statement:
    offset, kind, name = cursor.starts[cursor.i], "vega", ""
    cursor.i += 1
    if cursor.is_word("tools"):
        kind = "mcp"
        cursor.i += 1
        for word in ("from", "mcp"):
            if not cursor.is_word(word):
                cursor.fail_expected(f"`{word}`", hint='write `import tools from mcp "server";`')
            cursor.i += 1
    elif cursor.kinds[cursor.i] == "name":
        kind = cursor.values[cursor.i]
        if kind not in ("node", "python"):
            cursor.fail_here(f"`{kind}` cannot be imported", 'write `import "./file.vega" as name;`')
        cursor.i += 1
    if cursor.kinds[cursor.i] != "string":
        cursor.fail_expected("a string", where="after `import`", hint='write `import "./file.vega" as name;`')
    place, target = cursor.i, cursor.values[cursor.i]
    cursor.i += 1
    if cursor.is_word("as"):
        cursor.i += 1
        name = cursor.name("the name of an import")
    elif kind != "mcp":
        stem = _STEM.match(target.rpartition("/")[2].rpartition(":")[2])
        if stem is None:
            cursor.note(cursor.starts[place], cursor.ends[place], "this import needs a name", "add `as name`")
        name = stem[1] if stem else "_"
    cursor.semicolon("this `import`")
    return ast.Import(kind, target, name, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_test(cursor: Cursor) -> ast.Statement:
    offset, name = cursor.starts[cursor.i], cursor.values[cursor.i + 1]
    cursor.i += 2
    body = parse_block(cursor, "after the test's name")
    return ast.Test(name, body, at=offset, end=cursor.ends[cursor.i - 1])


# The keyword that begins a declaration → its rule. `test` is a keyword only before a string.
DECLARATIONS: Final[dict[str, Callable[[Cursor], ast.Statement]]] = {
    "fn": _parse_function,
    "tool": _parse_tool,
    "agent": _parse_agent,
    "supervisor": _parse_supervisor,
    "const": _parse_const,
    "import": _parse_import,
    "test": _parse_test,
}


GRAMMAR: Final = Grammar({**EXPRESSIONS, **MATCHES}, {**STATEMENTS, **DECLARATIONS}, parse_block)


class Parsed(NamedTuple):
    """The tree, as far as it could be read, and every mistake in it."""

    module: ast.Module
    problems: list[Diagnostic]
    is_unfinished: bool = False  # it breaks off: with more text it might be right


def parse(text: str, name: str = "<vega>") -> ast.Module:
    """Return the tree of a source; ParseError with all mistakes in `fields["problems"]`."""
    parsed = parse_all(Source(name, text))
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    return parsed.module


def parse_all(source: Source) -> Parsed:
    """Return the tree and the mistakes of a source, without raising."""
    empty = ast.Module([], [], at=0, end=len(source.text))
    if len(source.text) > VEGA_SOURCE_CHARS_MAX:
        return Parsed(empty, [source.problem(0, 1, f"a source has at most {VEGA_SOURCE_CHARS_MAX} characters")])
    lexed = lex(source)
    if lexed.cut_off:
        return Parsed(empty, lexed.problems, is_unfinished=True)
    cursor = Cursor(source, lexed.tokens, GRAMMAR)
    try:
        statements = parse_module(cursor)
    except RecursionError:  # the caller was deep already
        cursor.note(0, 1, "this is nested too deeply", f"at most {VEGA_NESTING_MAX} levels")
        statements = []
    module = ast.Module(statements, lexed.comments, at=0, end=len(source.text))
    is_unfinished = cursor.is_unfinished and not lexed.problems
    return Parsed(module, _together(lexed.problems, cursor.problems), is_unfinished)


def _together(lexical: list[Diagnostic], syntactical: list[Diagnostic]) -> list[Diagnostic]:
    """Both kinds in order of place; a line whose characters are wrong is not judged a second time."""
    told = {problem.line for problem in lexical}
    kept = [problem for problem in syntactical if problem.line not in told]
    return sorted(lexical + kept, key=lambda problem: problem.at)[:VEGA_PROBLEMS_MAX]


def parse_module(cursor: Cursor) -> list[ast.Statement]:
    statements: list[ast.Statement] = []
    while True:
        parse_statements(cursor, statements)
        if cursor.kinds[cursor.i] == "end":
            return statements
        cursor.note(cursor.starts[cursor.i], cursor.ends[cursor.i], "this `}` closes nothing")
        cursor.i += 1
