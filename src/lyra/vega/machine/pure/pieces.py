"""Pieces of Python's `ast` that generated code is put together from."""

from __future__ import annotations

import ast
from typing import Any, Final

from lyra.vega.values.values import INT_MAX, INT_MIN

SMALL: Final = 0x3FFFFFFF  # one digit of a Python int
LOAD, STORE = ast.Load(), ast.Store()


def named(name: str) -> ast.Name:
    return ast.Name(name, LOAD)


def constant(value: Any) -> ast.expr:
    return ast.Constant(value)


def call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(named(name), list(arguments), [])


def compare(left: ast.expr, *rest: tuple[type[ast.cmpop], ast.expr]) -> ast.expr:
    return ast.Compare(left, [operator() for operator, _ in rest], [value for _, value in rest])


def give_up() -> ast.stmt:
    return ast.Raise(named("GiveUp"), None)


def assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, STORE)], value)


def fitting(value: ast.expr, again: ast.expr, is_positive: bool) -> ast.expr:
    """Whether an int fits 64 bits. Small ones are let through first: Python compares those quickly."""
    if is_positive:
        tests = [compare(value, (ast.Lt, constant(SMALL))), compare(again, (ast.LtE, constant(INT_MAX)))]
    else:
        tests = [
            compare(constant(-SMALL), (ast.Lt, value), (ast.Lt, constant(SMALL))),
            compare(constant(INT_MIN), (ast.LtE, again), (ast.LtE, constant(INT_MAX))),
        ]
    return ast.BoolOp(ast.Or(), tests)
