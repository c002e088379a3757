"""Compiles conditions and contracts of a program to closures.

A contract holds, fails, or cannot be judged because the host did not supply something; the last are collected by their
text. An error inside a contract is a failure of it. A postcondition about fields of success says nothing about an error
answer, unless it names `success` or `error` itself; an invariant says nothing as long as a variable in it has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lyra.vesper.direct.expressions import compile_condition
from lyra.vesper.direct.frames import MISSING, Frame, NotSupplied, Scope
from lyra.vesper.direct.walk import names_in
from lyra.vesper.ir import Condition, Contract
from lyra.vesper.values.outcome import NodeError

Judge = Callable[[Frame, list[str]], str | None]  # the text of the first contract that fails


def all_hold(checks: Iterable[Condition], scope: Scope) -> Callable[[Frame], bool]:
    """Whether all checks are true, in order, to the first that is not."""
    conditions = [compile_condition(check.expression, scope) for check in checks]
    if len(conditions) == 1:
        return conditions[0]

    def decide(frame: Frame) -> bool:
        for holds in conditions:  # noqa: SIM110 - a loop is quicker than all()
            if not holds(frame):
                return False
        return True

    return decide


def compile_contracts(
    contracts: Iterable[Contract], scope: Scope, *, undefined: frozenset[str], always: bool = False
) -> Judge:
    """Judges the contracts in order. A contract with one of the undefined names is passed over while that has no
    value; unless `always`, one that also names `success` or `error` is not."""
    judges = [_judge(contract, scope, undefined, always=always) for contract in contracts]
    if not judges:
        return lambda frame, unverifiable: None  # noqa: ARG005 (one signature)
    if len(judges) == 1:
        return judges[0]

    def first_failure(frame: Frame, unverifiable: list[str]) -> str | None:
        for judge in judges:
            failure = judge(frame, unverifiable)
            if failure is not None:
                return failure
        return None

    return first_failure


def _judge(contract: Contract, scope: Scope, undefined: frozenset[str], *, always: bool) -> Judge:
    text, expression = contract.text, contract.expression
    if expression is None:
        return lambda _, unverifiable: _note(text, unverifiable)
    holds = compile_condition(expression, scope)
    names = names_in(expression)
    slots = [scope.names[name] for name in sorted(names & undefined) if name in scope.names]
    if not always and names & {"success", "error"}:
        slots = []

    def judge(frame: Frame, unverifiable: list[str]) -> str | None:
        for slot in slots:
            if frame[slot] is MISSING:
                return None
        try:
            return None if holds(frame) else text
        except NotSupplied:
            _note(text, unverifiable)
            return None
        except NodeError:
            return text

    return judge


def _note(text: str, unverifiable: list[str]) -> None:
    if text not in unverifiable:
        unverifiable.append(text)
