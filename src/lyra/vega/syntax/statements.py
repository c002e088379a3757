"""Statements and blocks: one method each, found by the keyword that begins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax.ast import (
    Assign,
    Block,
    Break,
    Call,
    Catch,
    Continue,
    Defer,
    Expression,
    ExpressionStatement,
    Field,
    For,
    ForIn,
    If,
    Index,
    Let,
    Match,
    Mock,
    MockReply,
    Name,
    Parallel,
    Receive,
    Return,
    Session,
    Statement,
    Throw,
    Try,
    While,
)
from lyra.vega.syntax.cursor import Stop
from lyra.vega.syntax.patterns import Patterns

__all__ = ["STATEMENTS", "Statements"]


# Behind a name these can only mean that the name was to be a keyword.
_NO_CONTINUATION: Final = frozenset({"name", "string", "template", "int", "float", "money", "duration", "true", "null"})


class Statements(Patterns):
    __slots__ = ()

    def block(self, what: str) -> Block:
        at = self.open_brace(what)
        self.depth += 1
        if self.depth > VEGA_NESTING_MAX:
            self.too_deep()
        statements: list[Statement] = []
        self.statements_into(statements)
        if self.kinds[self.i] == "end":
            self.fail_unclosed()
        self.close_brace("after the block")
        self.depth -= 1
        return Block(statements, at=at, end=self.ends[self.i - 1])

    def statements_into(self, found: list[Statement]) -> None:
        """All statements up to a `}` or the end; one that is wrong is left out."""
        kinds, depth, braces = self.kinds, self.depth, len(self.braces)
        while (kind := kinds[self.i]) != "}" and kind != "end":
            if kind == ";":  # a statement that is not there
                self.i += 1
                continue
            start = self.i
            try:
                found.append(STATEMENTS.get(kind, _other)(self))
            except Stop:
                self.depth = depth
                self.recover(start, braces)

    # ---------------------------------------------------------------- without a keyword

    def simple(self) -> Statement:
        at = self.starts[self.i]
        value = self.expression()
        if self.kinds[self.i] != "=":
            return ExpressionStatement(value, at=at, end=self.ends[self.i - 1])
        if not isinstance(value, (Name, Index, Field)):
            self.fail(
                value.at, value.end, "this cannot be assigned to", "a name, `list[i]`, `map[key]` or `value.field`"
            )
        self.i += 1
        new = self.expression()
        return Assign(value, new, at=at, end=self.ends[self.i - 1])

    def other(self) -> Statement:
        i, at = self.i, self.starts[self.i]
        if self.kinds[i] == "name" and self.kinds[i + 1] in _NO_CONTINUATION:
            if self.values[i] == "test" and self.kinds[i + 1] == "string":
                return self.test()
            if self.values[i] == "mock" and self.kinds[i + 2] == "{":
                return self._mock()
            hint = self.word_hint()
            if hint is not None:
                self.fail_here(f"`{self.values[i]}` begins no statement", hint)
        statement = self.simple()
        if isinstance(statement, ExpressionStatement) and isinstance(statement.value, (Match, Receive)):
            self.take(";")
        else:
            self.semicolon("this assignment" if isinstance(statement, Assign) else "this expression")
        statement.at, statement.end = at, self.ends[self.i - 1]
        return statement

    def match_or_receive(self) -> Statement:
        """As a statement it ends with its `}`, whatever follows."""
        at = self.starts[self.i]
        value = self.match() if self.kinds[self.i] == "match" else self.receive()
        self.take(";")
        return ExpressionStatement(value, at=at, end=self.ends[self.i - 1])

    # ---------------------------------------------------------------- values and jumps

    def _let(self) -> Statement:
        statement = self._let_open()
        self.semicolon("this `let`")
        statement.end = self.ends[self.i - 1]
        return statement

    def _let_open(self) -> Let:
        at = self.starts[self.i]
        self.i += 1
        if self.kinds[self.i] in ("[", "{"):
            self.fail_here("`let` declares one name", "to take a list apart: `match list { [a, b] => … }`")
        name = self.name("the name of a variable")
        kind = self.type_() if self.take(":") else None
        value = self.expression() if self.take("=") else None
        return Let(name, kind, value, at=at, end=self.ends[self.i - 1])

    def jump(self) -> Statement:
        at, kind = self.starts[self.i], self.kinds[self.i]
        self.i += 1
        if kind == "break":
            return Break(at=at, end=self.ends[self.i - 1])
        if kind == "continue":
            return Continue(at=at, end=self.ends[self.i - 1])
        if kind == "return":
            bare = self.kinds[self.i] in (";", "}", ",", "end")
            value = None if bare else self.expression()
            return Return(value, at=at, end=self.ends[self.i - 1])
        thrown = self.expression()
        error, text = _thrown(thrown)
        if error and isinstance(thrown, Call) and (len(thrown.arguments) > 1 or any(a.name for a in thrown.arguments)):
            self.note(thrown.at, thrown.end, "an error carries one text", f'write `throw {error}("text")`')
        return Throw(text, error or "Error", at=at, end=self.ends[self.i - 1])

    def _jump_statement(self) -> Statement:
        word = self.kinds[self.i]
        statement = self.jump()
        self.semicolon(f"`{word}`" if word in ("break", "continue") else f"this `{word}`")
        statement.end = self.ends[self.i - 1]
        return statement

    # ---------------------------------------------------------------- branches and loops

    def _if(self) -> Statement:
        chain: list[tuple[int, Expression, Block]] = []
        last: Block | If | None = None
        while True:
            at = self.starts[self.i]
            self.i += 1
            condition = self._condition("if")
            chain.append((at, condition, self.block("after the condition of `if`")))
            if not self.take("else"):
                break
            if self.kinds[self.i] != "if":
                last = self.block("after `else`")
                break
        end = self.ends[self.i - 1]
        for at, condition, then in reversed(chain):
            last = If(condition, then, last, at=at, end=end)
        assert isinstance(last, If)
        return last

    def _condition(self, word: str) -> Expression:
        if self.kinds[self.i] == "{" and not self.is_map():
            self.fail_here(f"`{word}` has no condition")
        condition = self.expression()
        if self.kinds[self.i] == "=":
            self.fail_here("a condition cannot assign", "equality is `==`")
        return condition

    def _while(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        condition = self._condition("while")
        body = self.block("after the condition of `while`")
        return While(condition, body, at=at, end=self.ends[self.i - 1])

    def _for(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        i = self.i
        if self.kinds[i] == "name" and self.kinds[i + 1] == "name" and self.values[i + 1] == "in":
            self.i = i + 2
            source = self.expression()
            body = self.block("after the head of `for`")
            return ForIn(self.values[i], source, body, at=at, end=self.ends[self.i - 1])
        if self.kinds[i] == "(" and (self.kinds[i + 1] in ("let", ";") or self.kinds[i + 2] in ("name", "=")):
            return self._parenthesised_for(at)
        start: Statement | None = None
        if self.kinds[i] == "let":
            start = self._let_open()
        elif self.kinds[i] != ";":
            start = self.simple()
        if self.is_word("in"):
            self.fail_here("`for` binds one plain name", "write `for x in list {`")
        self.expect(";", "after the start of `for`")
        condition = None if self.kinds[self.i] == ";" else self._condition("for")
        self.expect(";", "after the condition of `for`")
        step = None if self.kinds[self.i] == "{" else self.simple()
        body = self.block("after the head of `for`")
        return For(start, condition, step, body, at=at, end=self.ends[self.i - 1])

    def _parenthesised_for(self, at: int) -> Statement:
        hint = "write `for x in list {` or `for let i = 0; i < n; i = i + 1 {`"
        self.note(self.starts[self.i], self.ends[self.i], "`for` takes no parentheses", hint)
        while self.kinds[self.i] not in ("{", "}", "end"):
            self.i += 1
        return For(None, None, None, self.block("after the head of `for`"), at=at, end=self.ends[self.i - 1])

    # ---------------------------------------------------------------- scopes

    def _plain_block(self) -> Statement:
        return self.block("")

    def _try(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        body = self.block("after `try`")
        catches: list[Catch] = []
        while self.kinds[self.i] == "catch":
            catches.append(self._catch())
        finally_body = self.block("after `finally`") if self.take("finally") else None
        if not catches and finally_body is None:
            self.note(at, at + 3, "this `try` has neither `catch` nor `finally`", "add `catch Error(reason) { … }`")
        return Try(body, catches, finally_body, at=at, end=self.ends[self.i - 1])

    def _catch(self) -> Catch:
        at = self.starts[self.i]
        self.i += 1
        if self.kinds[self.i] in ("(", "{"):
            self.fail_here("`catch` needs the name of an error", "every error: `catch Error(reason) { … }`")
        error, binding = self.name("the name of an error"), ""
        if self.kinds[self.i] == "(":
            opened = self.starts[self.i]
            self.i += 1
            binding = self.name("the name for the reason")
            self.close(")", opened, "after the name")
        body = self.block("after `catch`")
        return Catch(error, binding, body, at=at, end=self.ends[self.i - 1])

    def _parallel(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        return Parallel(self.block("after `parallel`"), at=at, end=self.ends[self.i - 1])

    def _defer(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        return Defer(self.block("after `defer`"), at=at, end=self.ends[self.i - 1])

    def _session(self) -> Statement:
        at = self.starts[self.i]
        self.i += 1
        if not self.is_word("budget"):
            self.expected("`budget`", where="after `session`", hint="write `session budget $10.00 {`")
        self.i += 1
        budget = self.expression()
        body = self.block("after the budget")
        return Session(budget, body, at=at, end=self.ends[self.i - 1])

    def _mock(self) -> Statement:
        at, agent = self.starts[self.i], self.values[self.i + 1]
        self.i += 2
        self.open_brace("after the agent")
        replies: list[MockReply] = []
        while self.kinds[self.i] != "}":
            start = self.starts[self.i]
            if not self.is_word("on"):
                self.expected("`on`", where="in `mock`", hint='write `on "pattern" reply "text"`')
            self.i += 1
            if self.kinds[self.i] != "string":
                self.expected("a string", where="after `on`")
            pattern = self.values[self.i]
            self.i += 1
            if not self.is_word("reply"):
                self.expected("`reply`", where="after the pattern")
            self.i += 1
            reply = self.expression()
            replies.append(MockReply(pattern, reply, at=start, end=self.ends[self.i - 1]))
            while self.kinds[self.i] in (",", ";"):
                self.i += 1
        self.close_brace("after the replies")
        return Mock(agent, replies, at=at, end=self.ends[self.i - 1])

    def test(self) -> Statement:
        raise NotImplementedError

    def _stray(self) -> Statement:
        word = self.kinds[self.i]
        owner = {"else": "if", "catch": "try", "finally": "try"}[word]
        self.fail_here(f"this `{word}` belongs to no `{owner}`")


def _thrown(value: Expression) -> tuple[str, Expression | None]:
    """The error's name and its text: `Name("text")`, `Name`; ("", value) for a plain text."""
    if isinstance(value, Call) and isinstance(value.callee, Name) and value.callee.name[:1].isupper():
        return value.callee.name, value.arguments[0].value if value.arguments else None
    if isinstance(value, Name) and value.name[:1].isupper() and not value.name.isupper():
        return value.name, None
    return "", value


def _other(parser: Any) -> Statement:
    found: Statement = parser.other()
    return found


STATEMENTS: Final[dict[str, Callable[[Any], Statement]]] = {
    "name": Statements.other,
    "let": Statements._let,
    "if": Statements._if,
    "while": Statements._while,
    "for": Statements._for,
    "match": Statements.match_or_receive,
    "receive": Statements.match_or_receive,
    "break": Statements._jump_statement,
    "continue": Statements._jump_statement,
    "return": Statements._jump_statement,
    "throw": Statements._jump_statement,
    "try": Statements._try,
    "{": Statements._plain_block,
    "parallel": Statements._parallel,
    "session": Statements._session,
    "defer": Statements._defer,
    "else": Statements._stray,
    "catch": Statements._stray,
    "finally": Statements._stray,
}
