"""The families of the parser, checker, formatter and compiler by themselves, and their tables put together."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
import pytest

from lyra.vega.checker.checker import RULES as CHECK_RULES
from lyra.vega.checker.expressions import KINDS, kind_of
from lyra.vega.checker.scope import Binding, CheckRules, ModuleCheck
from lyra.vega.checker.types import ValueKind
from lyra.vega.compiler.compiler import RULES as COMPILE_RULES
from lyra.vega.format.formatter import _VALUES, format_type, format_value
from lyra.vega.format.formatter import STATEMENTS as FORMATS
from lyra.vega.format.layout import Comments, FormatState, render
from lyra.vega.syntax import ast
from lyra.vega.syntax.cursor import Cursor, Grammar, Stop
from lyra.vega.syntax.expressions import EXPRESSIONS, parse_expression, parse_type
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import GRAMMAR
from lyra.vega.syntax.patterns import parse_simple
from lyra.vega.syntax.source import Source


def no_block(*_: Any) -> NoReturn:
    raise AssertionError("no block is expected here")


def cursor(text: str, grammar: Grammar | None = None) -> Cursor:
    source = Source("x", text)
    return Cursor(source, lex(source).tokens, grammar or Grammar(EXPRESSIONS, {}, no_block))


def test_expressions_need_no_statements():
    """A grammar of expressions alone reads all of them that hold no block."""
    node = parse_expression(cursor("1 + [a, f(x: 2)].len() * -b"))
    assert isinstance(node, ast.Binary)
    assert node.operator == "+"


def test_a_rule_that_is_not_in_the_grammar_is_a_mistake():
    """`match` is a rule of the patterns: without them it begins no expression."""
    short = cursor("match x { _ => 1 }")
    with pytest.raises(Stop):
        parse_expression(short)
    assert "expected an expression" in short.problems[0].message
    assert isinstance(parse_expression(cursor("match x { _ => 1 }", GRAMMAR)), ast.Match)


def test_simple_statements_and_types_need_no_statements():
    assert isinstance(parse_simple(cursor("a.b = 1")), ast.Assign)
    assert parse_type(cursor("map[str, list[int]]")).parameters[1].name == "list"


def test_the_kind_of_an_expression_needs_no_statements():
    def no_import(node: ast.Import) -> Binding:
        raise AssertionError(node)

    check = ModuleCheck(Source("x", ""), (), CheckRules(KINDS, no_block), no_import)
    assert kind_of(check, parse_expression(cursor('"a" + 1'))) == ValueKind("str")
    kind_of(check, parse_expression(cursor("$1.00 + 5s")))
    assert [problem.message for problem in check.problems] == ["`+` cannot join money and a duration"]


def test_an_expression_is_written_without_statements():
    text = "f( 1,2 )+( a )"
    source = Source("x", text)
    state = FormatState(text, Comments(source, lex(source)), {})
    assert render(format_value(state, parse_expression(cursor(text))), 80) == "f(1, 2) + a"
    assert render(format_type(state, parse_type(cursor("list[ int ]"))), 80) == "list[int]"


def kinds_of(base: type[msgspec.Struct]) -> set[type]:
    """All kinds of nodes below a class that have no kinds below themselves."""
    below = base.__subclasses__()
    return {leaf for kind in below for leaf in (kinds_of(kind) or {kind})}


def test_every_expression_has_its_rules():
    """A new kind of expression needs a rule in the checker, the formatter and the compiler."""
    nodes = kinds_of(ast.Expression)
    assert nodes == set(CHECK_RULES.kinds) == set(_VALUES)
    assert nodes - set(COMPILE_RULES.expressions) == {ast.TypeLiteral}  # `output` of an agent: a setting, no value


def test_every_statement_has_its_rules():
    nodes = kinds_of(ast.Statement)
    assert nodes == set(FORMATS) == set(COMPILE_RULES.statements)
