"""Statements that check conditions: constraints, guards, contracts.

A condition that cannot raise becomes one `if`. One that can is evaluated inside a `try`: an error in a contract is a
failure of that contract, and a missing predicate or object makes it unverifiable, which is noted and stops nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from lyra.vesper.ir import Condition, Contract
from lyra.vesper.python.expressions import ExpressionWriter, PythonScope
from lyra.vesper.python.syntax import ModuleParts, assign, attribute, call, if_, name, negated, raise_


class Checks:
    """Writes checks into one function. `uses_run` says whether one of them needs the run's state."""

    def __init__(self, module: ModuleParts) -> None:
        self.module = module
        self.uses_run = False

    def all_true(
        self, checks: Sequence[Condition], scope: PythonScope, sink: list[ast.stmt], *, in_loop: bool
    ) -> ast.expr:
        """Whether all checks are true, from left to right."""
        writer = ExpressionWriter(self.module, scope, sink, in_loop=in_loop)
        first, *rest = checks
        tests = [writer.condition(first.expression)]
        tests += [writer.lazy(check.expression, as_condition=True) for check in rest]
        self.uses_run |= writer.uses_run
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)

    def contract(self, contract: Contract, scope: PythonScope, failure: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements that do `failure` where the contract does not hold."""
        note = ast.Expr(call(attribute(name("run"), "unverified"), ast.Constant(contract.text)))
        if contract.expression is None:
            self.uses_run = True
            return [note]
        return self.condition(Condition(contract.text, contract.expression), scope, failure, is_contract=True)

    def condition(
        self, check: Condition, scope: PythonScope, failure: Sequence[ast.stmt], *, is_contract: bool = False
    ) -> list[ast.stmt]:
        """Statements that do `failure` where the condition is not true, or raises."""
        statements: list[ast.stmt] = []
        writer = ExpressionWriter(self.module, scope, statements)
        test = writer.condition(check.expression)
        self.uses_run |= writer.uses_run
        if not writer.may_raise:
            return [*statements, _for_every(test, failure) or if_(negated(test), failure)]
        holds = self.module.names.fresh("holds")
        handlers = []
        if is_contract and writer.uses_host:
            self.uses_run = True
            noted = call(attribute(name("run"), "unverified"), ast.Constant(check.text))
            handlers.append(self._handler(self.module.runtime("Unverifiable"), assign(holds, noted)))
        errors = ast.Tuple([self.module.runtime("NodeError"), name("ArithmeticError")], ast.Load())
        handlers.append(self._handler(errors, assign(holds, ast.Constant(False))))
        attempt = ast.Try([*statements, assign(holds, test)], handlers, [], [])
        return [attempt, if_(ast.UnaryOp(ast.Not(), name(holds)), failure)]

    @staticmethod
    def _handler(kind: ast.expr, *body: ast.stmt) -> ast.ExceptHandler:
        return ast.ExceptHandler(kind, None, list(body))

    def broken(self, code: str, text: str, phase: str) -> ast.stmt:
        arguments = (ast.Constant(part) for part in (code, text, phase))
        return raise_(call(self.module.runtime("broken"), *arguments))


def _for_every(test: ast.expr, failure: Sequence[ast.stmt]) -> ast.stmt | None:
    """A loop in place of `all(…)`, which would make a generator; None for another test. The name of the element is no
    other's, and the failure ends the function."""
    match test:
        case ast.Call(
            func=ast.Name("all"), args=[ast.GeneratorExp(elt=body, generators=[ast.comprehension(ifs=[]) as loop])]
        ):
            if isinstance(failure[-1], ast.Raise):
                return ast.For(loop.target, loop.iter, [if_(negated(body), failure)], [])
    return None
