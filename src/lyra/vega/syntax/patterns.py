"""`match` and `receive`: their arms and the patterns in them."""

from __future__ import annotations

from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax.ast import (
    Arm,
    Block,
    Expression,
    ExpressionStatement,
    ListPattern,
    LiteralPattern,
    Match,
    NamePattern,
    Pattern,
    Receive,
    Statement,
    VariantPattern,
    Wildcard,
)
from lyra.vega.syntax.expressions import CONSTANTS, PREFIXES, Expressions
from lyra.vega.values.values import INT_MAX, Duration

__all__ = ["VARIANTS", "Patterns"]

VARIANTS: Final = ("Ok", "Err")
_JUMPS: Final = frozenset({"return", "throw", "break", "continue"})


class Patterns(Expressions):
    __slots__ = ()

    def jump(self) -> Statement:
        """`return x`, `throw x`, `break` or `continue`, without its `;`."""
        raise NotImplementedError

    def simple(self) -> Statement:
        """An assignment or an expression, without its `;`."""
        raise NotImplementedError

    def match(self) -> Expression:
        at = self.starts[self.i]
        self.i += 1
        subject = self.expression()
        self.open_brace("after the value to match")
        arms: list[Arm] = []
        while self.kinds[self.i] != "}":
            arms.append(self._arm(self.pattern()))
            if not self._between_arms(arms[-1]):
                break
        self.close_brace("after the arms of `match`")
        return Match(subject, arms, at=at, end=self.ends[self.i - 1])

    def receive(self) -> Expression:
        at = self.starts[self.i]
        self.i += 1
        self.open_brace("after `receive`")
        arms: list[Arm] = []
        after: Expression | None = None
        after_body: Arm | None = None
        while self.kinds[self.i] != "}":
            if after_body is not None:
                self.fail_here("`after` is the last arm of `receive`", "put the patterns before it")
            start = self.starts[self.i]
            if self.is_word("after") and self.kinds[self.i + 1] != "=>":
                self.i += 1
                after = self.expression()
                arm = after_body = self._arm(Wildcard(at=start, end=self.ends[self.i - 1]))
            else:
                arm = self._arm(self.pattern())
                arms.append(arm)
            if not self._between_arms(arm):
                break
        self.close_brace("after the arms of `receive`")
        return Receive(arms, after, after_body, at=at, end=self.ends[self.i - 1])

    def _between_arms(self, arm: Arm) -> bool:
        """Step over the `,` between two arms; a block needs none."""
        if self.take(","):
            return True
        if self.kinds[self.i] == "}":
            return False
        if self.kinds[self.i] == ";":
            self.fail_here("an arm ends with `,`")
        if self.source.text[self.ends[self.i - 1] - 1] == "}" and not arm.is_value:
            return True
        end = self.ends[self.i - 1]
        if "\n" in self.source.text[end : self.starts[self.i]] and self.kinds[self.i] != "end":
            self.note(end, end, "missing `,` after this arm")
            return True
        return self.expected("`,` or `}`", where="after an arm")

    def _arm(self, pattern: Pattern) -> Arm:
        self.expect("=>", "after the pattern")
        start, kind = self.starts[self.i], self.kinds[self.i]
        if kind == "{" and not self.is_map():
            return Arm(pattern, self.block("of the arm"), False, at=pattern.at, end=self.ends[self.i - 1])
        statement = self.jump() if kind in _JUMPS else self.simple()
        end = self.ends[self.i - 1]
        body = Block([statement], at=start, end=end)
        return Arm(pattern, body, isinstance(statement, ExpressionStatement), at=pattern.at, end=end)

    # ---------------------------------------------------------------- patterns

    def pattern(self) -> Pattern:
        self.depth += 1
        if self.depth > VEGA_NESTING_MAX:
            self.too_deep()
        i, at, kind = self.i, self.starts[self.i], self.kinds[self.i]
        found: Pattern
        if kind == "name":
            found = self._named()
        elif kind == "[":
            found = self._items()
        elif kind in ("string", "int", "float", "money", "duration", "-"):
            found = LiteralPattern(self._literal(), at=at, end=self.ends[self.i - 1])
        elif kind in CONSTANTS:
            self.i = i + 1
            found = LiteralPattern(CONSTANTS[kind], at=at, end=self.ends[i])
        elif kind == "template":
            self.fail_here("a pattern's string has no `${…}` in it", "bind a name and compare it in the arm")
        else:
            self.expected("a pattern", hint="a literal, a name, `_`, `Ok(p)`, `Err(p)` or `[p, q]`")
        if self.kinds[self.i] == "|":
            self.fail_here("an arm has one pattern", "write an arm for each")
        self.depth -= 1
        return found

    def _named(self) -> Pattern:
        i, at, name = self.i, self.starts[self.i], self.values[self.i]
        self.i = i + 1
        if self.kinds[self.i] != "(":
            end = self.ends[i]
            return Wildcard(at=at, end=end) if name == "_" else NamePattern(name, at=at, end=end)
        if name not in VARIANTS:
            near = did_you_mean(name, VARIANTS)
            hint = f"did you mean `{near}`?" if near else "only `Ok(p)` and `Err(p)` have parts"
            self.fail(at, self.ends[i], f"`{name}` is not a variant", hint)
        opened = self.starts[self.i]
        self.i += 1
        inner = self.pattern()
        self.take(",")
        self.close(")", opened, "after the pattern")
        return VariantPattern(name, inner, at=at, end=self.ends[self.i - 1])

    def _items(self) -> Pattern:
        at = self.starts[self.i]
        self.i += 1
        items: list[Pattern] = []
        while self.kinds[self.i] != "]":
            items.append(self.pattern())
            if not self.take(","):
                break
        self.close("]", at, "after the patterns of the list")
        return ListPattern(items, at=at, end=self.ends[self.i - 1])

    def _literal(self) -> Any:
        """The value of a literal, with the sign that may stand before it."""
        is_negative = self.take("-")
        i = self.i
        if self.kinds[i] not in ("string", "int", "float", "money", "duration"):
            self.expected("a number", where="after `-`")
        value = self.values[i]
        self.i = i + 1
        if self.kinds[i] == "int" and value > INT_MAX + is_negative:
            self.note(self.starts[i], self.ends[i], "this number is too large for a 64-bit int")
        if not is_negative:
            return value
        if isinstance(value, str):
            self.fail(self.starts[i - 1], self.ends[i - 1], "a string has no sign")
        return Duration(-value.nanoseconds) if isinstance(value, Duration) else -value


PREFIXES["match"] = Patterns.match
PREFIXES["receive"] = Patterns.receive
