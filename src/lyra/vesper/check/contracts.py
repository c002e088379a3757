"""Contracts: true, false or unverifiable, decided here as far as the text decides it.

A contract that uses an undefined name, or is a sentence rather than an expression, is unverifiable: a warning, an
error with `strict`. A bare name, and a call of an unknown function, are predicates of the embedding program. A
mistake in an expression is an error.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.errors import ParseError
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.scope import AMBIENT, NameScope, UndefinedName
from lyra.vesper.check.state import CheckState, TextSite
from lyra.vesper.expressions.parser import KEYWORDS, parse_expression
from lyra.vesper.expressions.terms import NameTerm, Term
from lyra.vesper.ir import Condition, Contract, Host, TypedExpression
from lyra.vesper.loading import ERROR, WARNING
from lyra.vesper.nodes.model import ContractText
from lyra.vesper.values.types import ANY, BOOLEAN, NULL, describe, without_null

_LOWER_KEYWORD: Final = re.compile(r"\b(and|or|not|in|contains|is|forall|exists)\b")


class ContractReader:
    """Reads contracts and guards."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing

    def contract(self, source: ContractText, scope: NameScope) -> Contract:
        """A contract; without an expression where it cannot be judged."""
        site = TextSite(source.path)
        if source.is_prose:
            return self._unverifiable(source, "it is a sentence", site, 0)
        try:
            term = parse_expression(source.text)
        except ParseError as error:
            if _is_prose(source.text, error):
                return self._unverifiable(source, "it is a sentence", site, 0)
            self.state.syntax(error, site)
            return Contract(source.text, None, "it cannot be read")
        slots = len(self.state.olds), dict(self.state.old_slots)
        try:
            expression = self._typed(term, scope, site)
        except UndefinedName as error:
            del self.state.olds[slots[0] :]
            self.state.old_slots = slots[1]
            return self._unverifiable(source, str(error), site, error.offset)
        return Contract(source.text, expression)

    def _typed(self, term: Term, scope: NameScope, site: TextSite) -> TypedExpression:
        name = _undefined_bare(term, scope)
        if name is not None:
            message = f"the contract is unverifiable unless the embedding program has a predicate `{name}`"
            self.state.mark(WARNING, "unverifiable", message, site, term.start)
            return Host(type=BOOLEAN, name=name, arguments=(), place=self.state.place(site, term.start))
        expression = self.typing.term(term, scope, site)
        self._boolean(expression, site, term)
        return expression

    def _unverifiable(self, source: ContractText, reason: str, site: TextSite, offset: int) -> Contract:
        self.state.mark(WARNING, "unverifiable", f"the contract is unverifiable: {reason}", site, offset)
        return Contract(source.text, None, reason)

    def guard(self, value: object, path: tuple[str | int, ...], scope: NameScope) -> Condition:
        """A guard: a condition, or the bare name of a predicate of the embedding program."""
        if not isinstance(value, str):
            expression = self.typing.condition(value, path, scope)
            return Condition(str(value).lower() if isinstance(value, bool) else str(value), expression)
        site = TextSite(path)
        try:
            term = parse_expression(value)
        except ParseError as error:
            self.state.syntax(error, site)
            return Condition(value, self.typing.value(None, path, scope))
        name = _undefined_bare(term, scope)
        if name is not None:
            place = self.state.place(site, term.start)
            return Condition(value, Host(type=BOOLEAN, name=name, arguments=(), place=place))
        expression = self.typing.term(term, scope.changed(allows_hosts=True), site)
        self._boolean(expression, site, term)
        return Condition(value, expression)

    def _boolean(self, expression: TypedExpression, site: TextSite, term: Term) -> None:
        kind = without_null(expression.type)
        if kind not in (ANY, BOOLEAN, NULL):
            message = f"a condition is a boolean, not {describe(kind)}"
            self.state.mark(ERROR, "not_boolean", message, site, term.start)


def _undefined_bare(term: Term, scope: NameScope) -> str | None:
    """The name of a term that is nothing but an undefined name."""
    if not isinstance(term, NameTerm):
        return None
    is_known = term.name in scope.names or term.name in scope.aliases or term.name in AMBIENT
    return None if is_known else term.name


def _is_prose(text: str, error: ParseError) -> bool:
    """Whether a text is a sentence: two words in a row that are no keywords in the wrong case."""
    if not error.fields.get("after_name"):
        return False
    upper = _LOWER_KEYWORD.sub(lambda match: match[0].upper(), text)
    if upper == text or not KEYWORDS.intersection(upper.split()):
        return True
    try:
        parse_expression(upper)
    except ParseError:
        return True
    return False
