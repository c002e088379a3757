"""Expressions, patterns and types as documents.

Literals are copied from the source, so a number or a string stays written as it was. Parentheses that the meaning
needs are put in; those that somebody put around an operator's operand to make it clear are kept; the others go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.vega.format.comments import Comments
from lyra.vega.format.layout import HARD, LINE, SOFT, Doc, group, indent, join, nest, only_broken
from lyra.vega.syntax.ast import (
    Argument,
    Arm,
    Await,
    Binary,
    Block,
    Call,
    Expression,
    Field,
    Index,
    Interpolation,
    Lambda,
    ListLiteral,
    ListPattern,
    Literal,
    MapLiteral,
    Match,
    MethodCall,
    Name,
    NamePattern,
    Node,
    Parameter,
    Path,
    Pattern,
    Receive,
    Return,
    Send,
    Spawn,
    Type,
    TypeLiteral,
    Unary,
    VariantPattern,
    Wildcard,
)
from lyra.vega.syntax.expressions import POWERS

__all__ = ["ExpressionFormatter"]

_SEND, _PREFIX, _POSTFIX = 1, 8, 9
_OPEN: Final = (Lambda, Match, Receive, Spawn)  # as a part of anything else they stand in parentheses
_SIMPLE_KEYS: Final = (Literal, Interpolation, Name)


class ExpressionFormatter:
    def __init__(self, comments: Comments) -> None:
        self.comments = comments
        self.text = comments.text

    def block(self, block: Block) -> Doc:
        raise NotImplementedError

    def inline(self, statement: Any) -> Doc:
        """A statement without its `;`, as an arm holds it."""
        raise NotImplementedError

    def settings(self, settings: dict[str, Expression], places: dict[str, int], opened: int, closed: int) -> Doc:
        raise NotImplementedError

    def value(self, node: Expression) -> Doc:
        return _VALUES[type(node)](self, node)

    def literal(self, node: Node) -> str:
        """As it is written; what may stand between a sign and its number is left out."""
        sign = "-" if self.text[node.at] == "-" else ""
        return sign + self.comments.token_up_to(node.end)

    # ---------------------------------------------------------------- parentheses

    def operand(self, node: Expression, least: int) -> Doc:
        """A part of something that binds with `least`; in parentheses where it would be read differently."""
        needs = isinstance(node, _OPEN) or _power(node) < least
        doc = self.value(node)
        return ["(", doc, ")"] if needs or self._is_wrapped(node) else doc

    def _is_wrapped(self, node: Expression) -> bool:
        """Whether an operator expression stands in parentheses of its own in the source."""
        if not isinstance(node, (Binary, Send)):
            return False
        return self.comments.is_wrapped(node.at, node.end)

    def first(self, node: Expression) -> Doc:
        """An expression at a place where `{` would begin a block and `match` a statement."""
        doc = self.value(node)
        return ["(", doc, ")"] if isinstance(_leftmost(node), (MapLiteral, Match, Receive)) else doc

    def body(self, node: Expression) -> Doc:
        """An expression at a place where a block could stand instead."""
        left = _leftmost(node)
        is_plain = isinstance(left, MapLiteral) and bool(left.entries) and isinstance(left.entries[0][0], _SIMPLE_KEYS)
        doc = self.value(node)
        return ["(", doc, ")"] if isinstance(left, MapLiteral) and not is_plain else doc

    # ---------------------------------------------------------------- items between brackets

    def items(self, nodes: Sequence[Any], write: Callable[[Any], Doc], end: int, *, is_broken: bool = False) -> Doc:
        """Items and commas, without the brackets: on one line, or each on its own; comments need the latter."""
        lines: list[Doc] = []
        has_comments = False
        for node in nodes:
            at = node[0].at if isinstance(node, tuple) else node.at
            stop = node[1].end if isinstance(node, tuple) else node.end
            before = self.comments.before(at)
            written = write(node)
            before += self.comments.before(stop)  # from its inside, where they have no line of their own
            doc: list[Doc] = [part for comment in before for part in (comment.text, HARD)]
            doc.append(written)
            is_last = node is nodes[-1]
            doc.append(only_broken(",") if is_last else ",")
            behind = self.comments.behind(stop)
            if behind is not None:
                doc.append("  " + behind.text)
            has_comments = has_comments or bool(before) or behind is not None
            lines.append(doc)
        rest = self.comments.before(end)
        lines.extend(comment.text for comment in rest)
        is_broken = is_broken or has_comments or bool(rest)
        return group(indent(SOFT, *join([LINE], lines)), SOFT, is_broken=is_broken) if lines else ""

    def _list(self, node: ListLiteral) -> Doc:
        return ["[", self.items(node.items, self.value, node.end - 1), "]"]

    def _map(self, node: MapLiteral) -> Doc:
        def entry(pair: tuple[Expression, Expression]) -> Doc:
            return [self.value(pair[0]), ": ", self.value(pair[1])]

        # A map that somebody began on a new line stays so.
        is_broken = bool(node.entries) and "\n" in self.text[node.at : node.entries[0][0].at]
        return ["{", self.items(node.entries, entry, node.end - 1, is_broken=is_broken), "}"]

    def arguments(self, arguments: list[Argument], end: int) -> Doc:
        def argument(node: Argument) -> Doc:
            return [node.name, ": ", self.value(node.value)] if node.name else self.value(node.value)

        return ["(", self.items(arguments, argument, end - 1), ")"]

    def parameters(self, parameters: list[Parameter], at: int) -> Doc:
        """Those of a declaration that begins at `at`."""
        end = self.comments.sign_behind(")", parameters[-1].end if parameters else at)
        return ["(", self.items(parameters, self._parameter, end), ")"]

    def _parameter(self, node: Parameter) -> Doc:
        doc: list[Doc] = [node.name]
        if node.type is not None:
            doc += [": ", self.type_(node.type)]
        if node.default is not None:
            doc += [" = ", self.value(node.default)]
        return doc

    # ---------------------------------------------------------------- values

    def _name(self, node: Name) -> Doc:
        return node.name

    def _path(self, node: Path) -> Doc:
        return f"{node.module}::{node.name}"

    def _type_literal(self, node: TypeLiteral) -> Doc:
        return self.type_(node.type)

    def _unary(self, node: Unary) -> Doc:
        return [node.operator, self.operand(node.operand, _PREFIX)]

    def _await(self, node: Await) -> Doc:
        return ["await ", self.operand(node.operand, _PREFIX)]

    def _binary(self, node: Binary) -> Doc:
        """`a + b + c`: a chain of one power breaks together, before its signs."""
        power, chain = POWERS[node.operator], [node]
        while isinstance(left := chain[-1].left, Binary) and POWERS[left.operator] == power:
            if self._is_wrapped(left):
                break
            chain.append(left)
        first = self.operand(chain[-1].left, power)
        steps: list[Doc] = []
        for each in reversed(chain):
            steps += [LINE, each.operator + " ", self.operand(each.right, power + 1)]
        return group(first, indent(*steps))

    def _send(self, node: Send) -> Doc:
        sign = " <~ " if node.is_stream else " <- "
        target = self.operand(node.target, _SEND + 1)
        # A limit behind a message that ends with a send would belong to that one.
        is_open = isinstance(node.message, (Send, Lambda)) and (node.timeout is not None or node.budget is not None)
        message = self.value(node.message)
        doc: list[Doc] = [target, sign, ["(", message, ")"] if is_open else message]
        limits = [(name, value) for name, value in (("timeout", node.timeout), ("budget", node.budget)) if value]
        for name, value in sorted(limits, key=lambda pair: pair[1].at):
            doc.append(indent(LINE, name, " ", self.operand(value, _SEND + 1)))
        return group(*doc)

    def _index(self, node: Index) -> Doc:
        return [self.operand(node.target, _POSTFIX), "[", self.value(node.index), "]"]

    def _field(self, node: Field) -> Doc:
        return [self.operand(node.target, _POSTFIX), ".", node.name]

    def _method(self, node: MethodCall) -> Doc:
        target = self.operand(node.target, _POSTFIX)
        return [target, ".", node.name, self.arguments(node.arguments, node.end)]

    def _call(self, node: Call) -> Doc:
        callee = self.operand(node.callee, _POSTFIX)
        if isinstance(node.callee, Field):  # without parentheses it would be a method
            callee = ["(", callee, ")"]
        return [callee, self.arguments(node.arguments, node.end)]

    def _lambda(self, node: Lambda) -> Doc:
        head: Doc = ["|", *join([", "], [self._parameter(parameter) for parameter in node.parameters]), "| "]
        if self.text[node.body.at] == "{" and not _is_value_body(node.body):
            return [head, self.block(node.body)]
        value = node.body.statements[0]
        assert isinstance(value, Return)
        assert value.value is not None
        return [head, self.body(value.value)]

    def _spawn(self, node: Spawn) -> Doc:
        doc: list[Doc] = ["spawn ", "async " if node.is_async else "", "fn " if node.is_function else ""]
        doc.append(self.value(node.target))
        if node.supervision is not None:
            given = node.supervision
            doc += [" supervised by ", self.settings(given.settings, given.places, given.at, given.end - 1)]
        return doc

    # ---------------------------------------------------------------- match and receive

    def _match(self, node: Match) -> Doc:
        return ["match ", self.first(node.subject), " ", self._arms(node.arms, node.end - 1)]

    def _receive(self, node: Receive) -> Doc:
        arms = list(node.arms)
        if node.after is not None and node.after_body is not None:
            arms.append(node.after_body)
        return ["receive ", self._arms(arms, node.end - 1, after=node.after)]

    def _arms(self, arms: list[Arm], end: int, after: Expression | None = None) -> Doc:
        lines: list[Doc] = []
        last = -1
        for arm in arms:
            is_after = after is not None and arm is arms[-1]
            before = self.comments.before(arm.at)
            head: Doc = ["after ", self.value(after)] if is_after and after is not None else self.pattern(arm.pattern)
            body = self._arm_body(arm)
            inside = self.comments.before(arm.end)
            for comment in before:
                lines += [self.gap(last, comment.at), comment.text]
                last = comment.end
            lines.append(self.gap(last, arm.at))
            lines += [part for comment in inside for part in (comment.text, HARD)]
            lines += [head, " => ", body]
            last = arm.end
            behind = self.comments.behind(arm.end)
            if behind is not None:
                lines.append("  " + behind.text)
                last = behind.end
        for comment in self.comments.before(end):
            lines += [self.gap(last, comment.at), comment.text]
            last = comment.end
        return ["{", nest(*lines), HARD, "}"] if lines else "{}"

    def gap(self, last: int, at: int) -> Doc:
        """A new line, and an empty one where there was one; `last` is -1 at the beginning of a block."""
        return [HARD, HARD] if last >= 0 and self.comments.blank_between(last, at) else HARD

    def _arm_body(self, arm: Arm) -> Doc:
        if self.text[arm.body.at] == "{" and not arm.is_value:
            return self.block(arm.body)
        return [self.inline(arm.body.statements[0]), ","]

    def pattern(self, node: Pattern) -> Doc:
        if isinstance(node, NamePattern):
            return node.name
        if isinstance(node, Wildcard):
            return "_"
        if isinstance(node, VariantPattern):
            return [node.variant, "(", self.pattern(node.inner), ")"]
        if isinstance(node, ListPattern):
            return ["[", *join([", "], [self.pattern(item) for item in node.items]), "]"]
        return self.literal(node)

    def type_(self, node: Type) -> Doc:
        inner = [self.type_(part) for part in node.parameters]
        if node.fields:
            fields = [[name, ": ", self.type_(part)] for name, part in node.fields.items()]
            return group("{", indent(SOFT, *join([",", LINE], fields), only_broken(",")), SOFT, "}")
        if node.name == "fn" and inner:
            result = node.parameters[-1]
            gives: Doc = [" -> ", inner[-1]] if result.end > result.at else ""
            return ["fn(", *join([", "], inner[:-1]), ")", gives]
        if node.name == "map" and self.text[node.at] == "{":
            return "{}"
        return [node.name, "[", *join([", "], inner), "]"] if inner else node.name


def _is_value_body(body: Block) -> bool:
    """Whether a lambda's body is one expression: its Return begins where the body does."""
    return len(body.statements) == 1 and isinstance(body.statements[0], Return) and body.statements[0].at == body.at


def _power(node: Expression) -> int:
    if isinstance(node, Binary):
        return POWERS[node.operator]
    if isinstance(node, Send):
        return _SEND
    return _PREFIX if isinstance(node, (Unary, Await)) or _is_negative(node) else 10


def _is_negative(node: Expression) -> bool:
    """The smallest int is one literal with a sign in it."""
    return isinstance(node, Literal) and type(node.value) is int and node.value < 0


def _leftmost(node: Expression) -> Expression:
    """The expression that a text begins with."""
    while True:
        if isinstance(node, Binary):
            node = node.left
        elif isinstance(node, Call):
            node = node.callee
        elif isinstance(node, (Send, Index, Field, MethodCall)):
            node = node.target
        else:
            return node


_VALUES: Final[dict[type, Callable[[Any, Any], Doc]]] = {
    Literal: ExpressionFormatter.literal,
    Interpolation: ExpressionFormatter.literal,
    Name: ExpressionFormatter._name,
    Path: ExpressionFormatter._path,
    TypeLiteral: ExpressionFormatter._type_literal,
    ListLiteral: ExpressionFormatter._list,
    MapLiteral: ExpressionFormatter._map,
    Lambda: ExpressionFormatter._lambda,
    Unary: ExpressionFormatter._unary,
    Binary: ExpressionFormatter._binary,
    Index: ExpressionFormatter._index,
    Field: ExpressionFormatter._field,
    Call: ExpressionFormatter._call,
    MethodCall: ExpressionFormatter._method,
    Spawn: ExpressionFormatter._spawn,
    Send: ExpressionFormatter._send,
    Await: ExpressionFormatter._await,
    Match: ExpressionFormatter._match,
    Receive: ExpressionFormatter._receive,
}
