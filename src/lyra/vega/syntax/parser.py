"""From a source to its tree: `parse`.

The parser is one class in layers, one module each: `parser_cursor` (where it stands, mistakes, recovery),
`parser_expressions`, `parser_patterns`, `parser_statements`, and the declarations here. It only knows the shape of a
program; names and types are the checker's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lyra.core.limits import VEGA_NESTING_MAX, VEGA_PROBLEMS_MAX, VEGA_SOURCE_CHARS_MAX
from lyra.errors import ParseError
from lyra.vega.syntax.ast import (
    Agent,
    Child,
    Const,
    Expression,
    Function,
    Import,
    Module,
    Parameter,
    Statement,
    Supervisor,
    Test,
    Tool,
    Type,
    TypeLiteral,
)
from lyra.vega.syntax.cursor import Stop
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.source import Diagnostic, Source, source_error
from lyra.vega.syntax.statements import STATEMENTS, Statements

__all__ = ["Parsed", "Parser", "parse", "parse_all"]

_STEM = re.compile(r"([^\W\d]\w*)(?:\.\w+)?\Z")


class Parsed(NamedTuple):
    """The tree, as far as it could be read, and every mistake in it."""

    module: Module
    problems: list[Diagnostic]
    is_unfinished: bool = False  # it breaks off: with more text it might be right


def parse(text: str, name: str = "<vega>") -> Module:
    """The tree of a source; ParseError with all mistakes in `fields["problems"]`."""
    parsed = parse_all(Source(name, text))
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    return parsed.module


def parse_all(source: Source) -> Parsed:
    """The same without raising."""
    empty = Module([], [], at=0, end=len(source.text))
    if len(source.text) > VEGA_SOURCE_CHARS_MAX:
        return Parsed(empty, [source.problem(0, 1, f"a source has at most {VEGA_SOURCE_CHARS_MAX} characters")])
    lexed = lex(source)
    if lexed.cut_off:
        return Parsed(empty, lexed.problems, is_unfinished=True)
    parser = Parser(source, lexed.tokens)
    try:
        statements = parser.module()
    except RecursionError:  # the caller was deep already
        parser.note(0, 1, "this is nested too deeply", f"at most {VEGA_NESTING_MAX} levels")
        statements = []
    module = Module(statements, lexed.comments, at=0, end=len(source.text))
    is_unfinished = parser.is_unfinished and not lexed.problems
    return Parsed(module, _together(lexed.problems, parser.problems), is_unfinished)


def _together(lexical: list[Diagnostic], syntactical: list[Diagnostic]) -> list[Diagnostic]:
    """Both kinds in order of place; a line whose characters are wrong is not judged a second time."""
    told = {problem.line for problem in lexical}
    kept = [problem for problem in syntactical if problem.line not in told]
    return sorted(lexical + kept, key=lambda problem: problem.at)[:VEGA_PROBLEMS_MAX]


class Parser(Statements):
    __slots__ = ()

    def module(self) -> list[Statement]:
        statements: list[Statement] = []
        while True:
            self.statements_into(statements)
            if self.kinds[self.i] == "end":
                return statements
            self.note(self.starts[self.i], self.ends[self.i], "this `}` closes nothing")
            self.i += 1

    # ---------------------------------------------------------------- types and parameters

    def type_(self) -> Type:
        self.depth += 1
        if self.depth > VEGA_NESTING_MAX:
            self.too_deep()
        at, kind = self.starts[self.i], self.kinds[self.i]
        found = Type("map", at=at)
        if kind == "{":
            found.fields = self._record()
        elif kind == "fn":
            self.i += 1
            found = Type("fn", self._signature(), at=at)
        elif kind in ("name", "null"):
            self.i += 1
            found = Type(self.values[self.i - 1], at=at)
            if self.kinds[self.i] == "[":
                found.parameters = self._inner_types("[", "]")
        else:
            self.expected("a type", hint="such as `int`, `str`, `list[str]`")
        found.end = self.ends[self.i - 1]
        self.depth -= 1
        return found

    def _inner_types(self, opening: str, closing: str) -> list[Type]:
        opened = self.starts[self.i]
        self.expect(opening)
        found: list[Type] = []
        while self.kinds[self.i] != closing:
            found.append(self.type_())
            if not self.take(","):
                break
        self.close(closing, opened, "after the types")
        return found

    def _signature(self) -> list[Type]:
        """`fn(int) -> str`: the parameters, then the result; a plain `fn` says nothing of either."""
        if self.kinds[self.i] != "(":
            return []
        parameters = self._inner_types("(", ")")
        end = self.ends[self.i - 1]
        result = self.type_() if self.take("->") else Type("any", at=end, end=end)
        return [*parameters, result]

    def _record(self) -> dict[str, Type]:
        self.open_brace("")
        fields: dict[str, Type] = {}
        while self.kinds[self.i] != "}":
            place = self.starts[self.i]
            name = self.any_word("the name of a field")
            if name in fields:
                self.note(place, self.ends[self.i - 1], f"`{name}` is given twice")
            self.expect(":", "after the field's name")
            fields[name] = self.type_()
            if not self.take(","):
                break
        self.close_brace("after the fields")
        return fields

    def parameters(self, close: str) -> list[Parameter]:
        """`x, y: int = 1` up to the closing sign, which is stepped over."""
        opened, found = self.starts[self.i - 1], []
        while self.kinds[self.i] != close:
            at = self.starts[self.i]
            name = self.name("the name of a parameter")
            kind = self.type_() if self.take(":") else None
            default = self.expression() if self.take("=") else None
            found.append(Parameter(name, kind, default, at=at, end=self.ends[self.i - 1]))
            if not self.take(","):
                break
        if close == ")":
            self.close(")", opened, "after the parameters")
        else:
            self.expect(close, "after the parameters")
        return found

    def _head(self, what: str) -> tuple[str, list[Parameter], Type | None]:
        name = self.name(f"the name of a {what}")
        self.expect("(", f"after the {what}'s name")
        parameters = self.parameters(")")
        return name, parameters, self.type_() if self.take("->") else None

    # ---------------------------------------------------------------- declarations

    def function(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        name, parameters, result = self._head("function")
        if self.kinds[self.i] == ":":
            self.fail_here("what a function gives stands behind `->`", f"write `fn {name}(…) -> type {{`")
        body = self.block("before the body of the function")
        return Function(name, parameters, result, body, at=at, end=self.ends[self.i - 1])

    def tool(self) -> Tool:
        at = self.starts[self.i]
        self.i += 1
        name, parameters, result = self._head("tool")
        settings, places = self.settings("{")
        body = self.block("before the body of the tool")
        return Tool(name, parameters, result, settings, body, places, at=at, end=self.ends[self.i - 1])

    def agent(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        name = self.name("the name of an agent")
        self.open_brace("after the agent's name")
        agent = Agent(name, {}, {}, [], at=at)
        depth, braces = self.depth, len(self.braces)
        while self.kinds[self.i] != "}":
            if self.kinds[self.i] == "end":
                self.fail_unclosed()
            try:
                self._agent_part(agent)
            except Stop:
                self.depth = depth
                self._recover_field(braces)
        self.close_brace("after the agent")
        agent.end = self.ends[self.i - 1]
        return agent

    def _agent_part(self, agent: Agent) -> None:
        if self.kinds[self.i] == "tool":
            agent.tools.append(self.tool())
            return
        place = self.starts[self.i]
        name = self.any_word("a field of the agent")
        if name in agent.fields:
            self.note(place, self.ends[self.i - 1], f"`{name}` is given twice")
        if name == "output":
            start = self.starts[self.i]
            value: Expression | dict[str, Expression] = TypeLiteral(self.type_(), at=start, end=self.ends[self.i - 1])
        elif self.kinds[self.i] == "{" and not self.is_map():
            self.open_brace("")
            value, places = self.settings("}")
            self.close_brace(f"after the settings of `{name}`")
            agent.places.update({f"{name}.{setting}": where for setting, where in places.items()})
        else:
            if self.kinds[self.i] in (":", "="):
                self.fail_here(f"a field is written without `{self.kinds[self.i]}`", f'such as `{name} "…"`')
            value = self.expression()
        agent.fields[name] = value
        agent.places[name] = place
        while self.kinds[self.i] in (",", ";"):
            self.i += 1

    def _recover_field(self, braces: int) -> None:
        """Skip a wrong field: to the next line of the agent, to its `}`, or to a tool."""
        inner = max(0, len(self.braces) - braces)
        del self.braces[braces:]
        while (kind := self.kinds[self.i]) != "end" and not (inner == 0 and kind == "}"):
            inner += (kind == "{") - (kind == "}")
            self.i += 1
            if inner == 0 and (self.kinds[self.i] == "tool" or (self.kinds[self.i] == "name" and self.begins_line())):
                return

    def supervisor(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        name = self.name("the name of a supervisor")
        self.open_brace("after the supervisor's name")
        settings: dict[str, Expression] = {}
        places: dict[str, int] = {}
        children: list[Child] = []
        while self.kinds[self.i] not in ("}", "end"):
            if self.is_word("child") and self.kinds[self.i + 2] == "=":
                children.append(self._child())
                continue
            place = self.starts[self.i]
            setting = self.any_word("a setting or `child name = …`")
            if setting in settings:
                self.note(place, self.ends[self.i - 1], f"`{setting}` is given twice")
            settings[setting] = self.expression()
            places[setting] = place
            while self.kinds[self.i] in (",", ";"):
                self.i += 1
        self.close_brace("after the children")
        return Supervisor(name, settings, children, places, at=at, end=self.ends[self.i - 1])

    def _child(self) -> Child:
        at = self.starts[self.i]
        self.i += 1
        name = self.name("the name of a child")
        self.expect("=", "after the child's name")
        is_function = self.kinds[self.i] == "fn"
        target = self.target("child")
        end = self.ends[self.i - 1]
        while self.kinds[self.i] in (",", ";"):
            self.i += 1
        return Child(name, target, is_function, at=at, end=end)

    def const(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        name = self.name("the name of a constant")
        kind = self.type_() if self.take(":") else None
        self.expect("=", "after the constant's name", "a constant has a value")
        value = self.expression()
        self.semicolon("this `const`")
        return Const(name, kind, value, at=at, end=self.ends[self.i - 1])

    def import_(self) -> Statement:
        at, kind, name = self.starts[self.i], "vega", ""
        self.i += 1
        if self.is_word("tools"):
            kind = "mcp"
            self.i += 1
            for word in ("from", "mcp"):
                if not self.is_word(word):
                    self.expected(f"`{word}`", hint='write `import tools from mcp "server";`')
                self.i += 1
        elif self.kinds[self.i] == "name":
            kind = self.values[self.i]
            if kind not in ("node", "python"):
                self.fail_here(f"`{kind}` cannot be imported", 'write `import "./file.vega" as name;`')
            self.i += 1
        if self.kinds[self.i] != "string":
            self.expected("a string", where="after `import`", hint='write `import "./file.vega" as name;`')
        place, target = self.i, self.values[self.i]
        self.i += 1
        if self.is_word("as"):
            self.i += 1
            name = self.name("the name of an import")
        elif kind != "mcp":
            stem = _STEM.match(target.rpartition("/")[2].rpartition(":")[2])
            if stem is None:
                self.note(self.starts[place], self.ends[place], "this import needs a name", "add `as name`")
            name = stem[1] if stem else "_"
        self.semicolon("this `import`")
        return Import(kind, target, name, at=at, end=self.ends[self.i - 1])

    def test(self) -> Statement:
        at, name = self.starts[self.i], self.values[self.i + 1]
        self.i += 2
        body = self.block("after the test's name")
        return Test(name, body, at=at, end=self.ends[self.i - 1])


STATEMENTS.update(
    {
        "fn": Parser.function,
        "tool": Parser.tool,
        "agent": Parser.agent,
        "supervisor": Parser.supervisor,
        "const": Parser.const,
        "import": Parser.import_,
    }
)
