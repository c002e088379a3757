"""Random Vega programs, and what two trees have in common apart from where things stand.

`Programs(pick)` writes programs that parse, token by token; `pick(n)` chooses one of n and may be hypothesis's or a
random generator's. `spaced` puts white space and comments between the tokens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lyra.vega.syntax.ast import SyntaxNode

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = ROOT / "tests" / "vega" / "documents"

T = TypeVar("T")
Tokens = list[str]
_WORKER = ("w", "(", "1", ")")
_COUNTED = ("for", "let", "i", "=", "0", ";", "i", "<", "3", ";", "i", "=", "i", "+", "1")
_TEAM = ("supervisor", "Team", "{", "strategy", "restart_all", "child", "a", "=")
_TEST = ("test", '"works"', "{", "mock", "Coder", "{", "on", '"x"', "reply", '"y"', "}")
_PLACES = ("at", "end", "places", "comments")
_SIGNS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||")
_NAMES = (
    "a",
    "b",
    "value",
    "coder",
    "timeout",
    "budget",
    "model",
    "after",
    "on",
    "test",
    "mock",
    "in",
    "by",
    "x1",
    "été",
)
_LITERALS = (
    *("0", "42", "1_000", "0xff", "0b101", "9223372036854775807", "1.5", "2e3", "$0.50", "$10", "100ms", "1.5s", "1h"),
    *(
        '""',
        '"text"',
        r'"a\n\t\"\$ \u{1F600}"',
        '"""two\nlines "quoted" """',
        '"${a}"',
        '"x ${f("y", [1])} ${"in ${b}"}"',
    ),
    *("true", "false", "null"),
)
_TYPES = (
    ["int"],
    ["str"],
    ["list", "[", "int", "]"],
    ["map", "[", "str", ",", "any", "]"],
    ["fn", "(", "int", ")"],
    ["fn"],
)


def shape(tree: Any) -> list[Any]:
    """A tree without its places, flat: each node with how much belongs to it, then its parts."""
    shapes: list[Any] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, SyntaxNode):
            parts = [getattr(node, name) for name in node.__struct_fields__ if name not in _PLACES]
            shapes.append(type(node).__name__)
        elif isinstance(node, (list, tuple)):
            parts = list(node)
            shapes.append(len(parts))
        elif isinstance(node, dict):
            parts = list(node.values())
            shapes.append(tuple(node))
        else:
            shapes.append((type(node).__name__, node))
            continue
        todo.extend(reversed(parts))
    return shapes


def blocks_of(text: str) -> list[str]:
    """The `vega` blocks of a Markdown text."""
    return re.findall(r"```vega\n(.*?)```", text, re.DOTALL)


class Programs:
    def __init__(self, pick: Callable[[int], int]) -> None:
        self.pick = pick

    @classmethod
    def seeded(cls, seed: int) -> Programs:
        return cls(random.Random(seed).randrange)

    def of(self, *options: T) -> T:
        return options[self.pick(len(options))]

    def many(self, write: Callable[[], Tokens], most: int, between: str = ",") -> Tokens:
        """Up to so many, with a sign between and sometimes behind."""
        tokens: Tokens = []
        count = self.pick(most + 1)
        for index in range(count):
            tokens += write()
            if between and (index < count - 1 or self.pick(3) == 0):
                tokens.append(between)
        return tokens

    def program(self, statements: int = 6) -> Tokens:
        tokens: Tokens = []
        for _ in range(1 + self.pick(statements)):
            tokens += self.declaration() if self.pick(3) == 0 else self.statement(3)
        return tokens

    # ---------------------------------------------------------------- expressions

    def name(self) -> Tokens:
        return [self.of(*_NAMES)]

    def atom(self) -> Tokens:
        return self.name() if self.pick(2) else [self.of(*_LITERALS)]

    def value(self, depth: int) -> Tokens:
        if depth <= 0:
            return self.atom()
        deeper = depth - 1
        forms: tuple[Callable[[], Tokens], ...] = (
            self.atom,
            lambda: [*self.value(deeper), self.of(*_SIGNS), *self.value(deeper)],
            lambda: [*self.value(deeper), self.of(*_SIGNS), "(", *self.value(deeper), ")"],
            lambda: ["(", *self.value(deeper), ")"],
            lambda: [self.of("-", "!", "await"), *self.part(deeper)],
            lambda: ["[", *self.many(lambda: self.value(deeper), 3), "]"],
            lambda: ["{", *self.many(lambda: [*self.atom(), ":", *self.value(deeper)], 3), "}"],
            lambda: [*self.part(deeper), *self.call(deeper)],
            lambda: [*self.part(deeper), ".", self.of("len", "field", "match"), *self.call(deeper)],
            lambda: [*self.part(deeper), ".", "field"],
            lambda: [*self.part(deeper), "[", *self.value(deeper), "]"],
            lambda: [self.of("str", "budget", "x"), "::", self.of("len", "spawn"), *self.call(deeper)],
            lambda: ["|", *self.many(self.parameter, 2), "|", *self.value(deeper)],
            lambda: ["||", *self.value(deeper)],
            lambda: ["|", *self.name(), "|", *self.block(deeper)],
            lambda: self.send(deeper),
            lambda: self.spawn(deeper),
            lambda: ["(", *self.match(deeper), ")"],
            lambda: ["(", *self.receive(deeper), ")"],
            lambda: ["-", "9223372036854775808"],
        )
        return self.of(*forms)()

    def part(self, depth: int) -> Tokens:
        """Something that a call, an index or a dot may follow."""
        return self.atom() if self.pick(2) else ["(", *self.value(depth), ")"]

    def call(self, depth: int) -> Tokens:
        def argument() -> Tokens:
            return [*([*self.name(), ":"] if self.pick(4) == 0 else []), *self.value(depth)]

        return ["(", *self.many(argument, 3), ")"]

    def send(self, depth: int) -> Tokens:
        tokens = [*self.part(depth), self.of("<-", "<~")]
        limits = self.of((), ("timeout",), ("budget",), ("budget", "timeout"))
        if not limits:
            return [*tokens, *self.value(depth)]
        tokens += [*self.part(depth), "+", *self.part(depth)] if self.pick(2) else self.part(depth)
        for word in limits:
            tokens += [word, *self.part(depth)]
        return tokens

    def spawn(self, depth: int) -> Tokens:
        target = self.of(["Coder"], ["team", "::", "Coder"], ["fn", "worker", *self.call(depth)])
        tokens = ["spawn", *self.of([], ["async"]), *target]
        if self.pick(3) == 0:
            tokens += ["supervised", "by", "{", "strategy", "restart", "window", "60s", "}"]
        return tokens

    def match(self, depth: int) -> Tokens:
        return ["match", *self.part(depth), "{", *self.arms(depth), "}"]

    def receive(self, depth: int) -> Tokens:
        after = ["after", "5s", "=>", *self.block(depth)] if self.pick(2) else []
        return ["receive", "{", *self.arms(depth), *after, "}"]

    def arms(self, depth: int) -> Tokens:
        tokens: Tokens = []
        for _ in range(self.pick(3)):
            body = self.of(
                lambda: [*self.part(depth), ","],
                lambda: self.block(depth),
                lambda: [*self.block(depth), ","],
                lambda: ["return", *self.part(depth), ","],
                lambda: ["a", "=", *self.part(depth), ","],
                lambda: ["break", ","],
            )()
            tokens += [*self.pattern(2), "=>", *body]
        return tokens

    def pattern(self, depth: int) -> Tokens:
        if depth <= 0:
            return [self.of("_", "p", "q", "1", '"t"', "null", "true", "$1.00", "5s")]
        return self.of(
            lambda: self.pattern(0),
            lambda: ["-", self.of("1", "2.5", "$1", "9223372036854775808")],
            lambda: [self.of("Ok", "Err"), "(", *self.pattern(depth - 1), ")"],
            lambda: ["[", *self.many(lambda: self.pattern(depth - 1), 3), "]"],
        )()

    # ---------------------------------------------------------------- statements

    def block(self, depth: int) -> Tokens:
        tokens = ["{"]
        for _ in range(self.pick(3)):
            tokens += self.statement(depth - 1)
        return [*tokens, "}"]

    def type_(self) -> Tokens:
        return list(self.of(*_TYPES))

    def parameter(self) -> Tokens:
        tokens = self.name()
        if self.pick(2):
            tokens += [":", *self.type_()]
        return [*tokens, "=", *self.atom()] if self.pick(3) == 0 else tokens

    def statement(self, depth: int) -> Tokens:
        if depth <= 0:
            return ["let", *self.name(), "=", *self.atom(), ";"]
        deeper = depth - 1
        forms: tuple[Callable[[], Tokens], ...] = (
            lambda: ["let", *self.name(), ";"],
            lambda: ["let", *self.name(), ":", *self.type_(), "=", *self.value(depth), ";"],
            lambda: ["let", *self.name(), "=", *self.value(depth), ";"],
            lambda: [*self.name(), "=", *self.value(depth), ";"],
            lambda: ["value", "[", *self.value(deeper), "]", "=", *self.value(depth), ";"],
            lambda: ["(", *self.value(depth), ")", ";"],
            lambda: ["print", *self.call(depth), ";"],
            lambda: ["if", *self.part(depth), *self.block(deeper), *self._else(deeper)],
            lambda: ["while", *self.part(depth), *self.block(deeper)],
            lambda: ["for", *self.name(), "in", *self.part(depth), *self.block(deeper)],
            lambda: [*_COUNTED, *self.block(deeper)],
            lambda: ["for", ";", ";", *self.block(deeper)],
            lambda: [self.of("break", "continue", "return"), ";"],
            lambda: ["return", *self.value(depth), ";"],
            lambda: ["throw", *self.of(self.part(depth), ["Lost"], ["BAD", "(", ")"]), ";"],
            lambda: ["throw", self.of("Broken", "Error"), "(", *self.value(deeper), ")", ";"],
            lambda: ["try", *self.block(deeper), "catch", "Broken", "(", "reason", ")", *self.block(deeper)],
            lambda: ["try", *self.block(deeper), "catch", "Error", *self.block(deeper), "finally", *self.block(deeper)],
            lambda: ["parallel", *self.block(deeper)],
            lambda: ["session", "budget", *self.part(deeper), *self.block(deeper)],
            lambda: ["defer", *self.block(deeper)],
            lambda: self.block(deeper),
            lambda: self.match(deeper),
            lambda: self.receive(deeper),
            lambda: self.function(deeper),
            lambda: ["const", "LIMIT", "=", *self.value(deeper), ";"],
        )  # fmt: skip
        return self.of(*forms)()

    def _else(self, depth: int) -> Tokens:
        return self.of(
            list,
            lambda: ["else", *self.block(depth)],
            lambda: ["else", "if", *self.part(depth), *self.block(depth), *self._else(depth)],
        )()

    # ---------------------------------------------------------------- declarations

    def function(self, depth: int) -> Tokens:
        result = ["->", *self.type_()] if self.pick(2) else []
        return ["fn", self.of("work", "main"), "(", *self.many(self.parameter, 3), ")", *result, *self.block(depth)]

    def tool(self) -> Tokens:
        settings = self.of([], ["capabilities", "[", "fs", "::", "read", "]", "allowed_paths", "[", '"/p/**"', "]"])
        return ["tool", "look", "(", *self.many(self.parameter, 2), ")", "->", "str", *settings, *self.block(2)]

    def agent(self) -> Tokens:
        fields = [
            ["model", self.of('"m"', '"a ${b}"')],
            ["temperature", "0.3"],
            ["retry", "{", "max_attempts", "3", "backoff", "exponential", "(", "1s", ",", "2.0", ")", "}"],
            ["circuit_breaker", "{", "}"],
            ["memory", *self.of(["none"], ["window", "(", "10", ")"])],
            ["output", *self.of(["str"], ["{", "name", ":", "str", ",", "age", ":", "int", "}"])],
            ["tools", "[", "look", ",", '"Read"', "]"],
            self.tool(),
        ]
        tokens = ["agent", self.of("Coder", "Reviewer"), "{"]
        for field in fields:
            tokens += field if self.pick(2) else []
        return [*tokens, "}"]

    def declaration(self) -> Tokens:
        forms: tuple[Callable[[], Tokens], ...] = (
            self.agent,
            self.tool,
            lambda: self.function(3),
            lambda: ["import", '"./x.vega"', *self.of([], ["as", "x"]), ";"],
            lambda: [*self.of('import node "a.vsp" ;', 'import tools from mcp "s" ;', 'import python "m:f" ;').split()],
            lambda: [*_TEAM, *self.of(["Coder"], ["fn", *_WORKER]), "}"],
            lambda: [*_TEST, *self.statement(2), "}"],
        )  # fmt: skip
        return self.of(*forms)()

    # ---------------------------------------------------------------- text

    def spaced(self, tokens: Tokens) -> tuple[str, list[str]]:
        """The tokens with white space and comments between, and the comments."""
        comments: list[str] = []
        out: list[str] = []
        for token in tokens:
            choice = self.pick(24)
            if choice == 0:
                comments.append(f"// note {len(comments)}")
                out.append(f" {comments[-1]}\n")
            elif choice == 1:
                comments.append(f"/* note {len(comments)} */")
                out.append(f" {comments[-1]} ")
            elif choice == 2:
                comments.append(f"/* note {len(comments)}\n   goes on */")
                out.append(f"\n{comments[-1]}\n")
            else:
                out.append(("\n", "\n\n", "\n\n\n", "\t")[choice - 3] if choice < 7 else " ")
            out.append(token)
        return "".join(out), comments
