"""Effects that other programs perform: in doubt when those are lost, found out after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.core.effect import Effect
from lyra.errors import EffectInDoubt, OutcomeUnknown
from lyra.kernel import Kernel
from tests.kernel.conftest import Crash, run, settle


class Outside:
    """The other program: `plan` says what becomes of each run, `known` what it tells after a restart."""

    def __init__(self, *plan: Any, known: Any = None, begins: bool = True) -> None:
        self.plan = list(plan)
        self.known = known
        self.begins = begins
        self.runs = 0
        self.asked_for: list[str] = []
        self.ends: list[bool] = []

    async def run(self, value: int, *, begin: Any) -> Any:
        self.runs += 1
        if self.begins:
            await begin()
        return await self._outcome(self.plan.pop(0))

    async def find_out(self, *args: Any, may_repeat: bool, idempotency_key: str) -> Any:
        return await self._outcome(self.known)

    async def _outcome(self, outcome: Any) -> Any:
        if outcome == "wait":
            await asyncio.Event().wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def on_asked(self, interrupt_id: str, *args: Any, idempotency_key: str) -> None:
        self.asked_for.append(interrupt_id)

    def on_settled(self, is_durable: bool, /, *args: Any, idempotency_key: str) -> None:
        self.ends.append(is_durable)


LOST = OutcomeUnknown("the performer is gone")
OUTSIDE: list[Outside] = []


async def program(ctx: Any) -> Any:
    outside = OUTSIDE[-1]
    effect = Effect(outside.run, name="outside", outside=outside)
    try:
        return await ctx.do(effect, 7)
    except EffectInDoubt as error:
        return error.code


async def plain(ctx: Any) -> Any:
    async def call() -> Any:
        outside = OUTSIDE[-1]
        return await outside._outcome(outside.plan.pop(0))

    try:
        return await ctx.do(Effect(call, name="call"))
    except EffectInDoubt as error:
        return error.code


@pytest.fixture(params=["memory", "durable"])
def store(request, path):
    return "memory" if request.param == "memory" else path


@pytest.mark.parametrize("form", [program, plain])
@pytest.mark.parametrize(
    ("decision", "result"), [("retry", "again"), ("skip", {"by": "hand"}), ("fail", "effect_in_doubt")]
)
def test_a_lost_performer_is_a_question(store, form, decision, result):
    """Also in a kernel without a store: retry performs it again, skip gives the answer's data, fail raises."""

    async def main():
        OUTSIDE.append(Outside(LOST, "again"))
        async with Kernel(store) as kernel:
            handle = kernel.spawn(form, pid="main")
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            assert question.kind == "in_doubt"
            await kernel.resolve_interrupt(question.id, {"decision": decision, "data": {"by": "hand"}})
            assert (await handle.wait()).result == result
        if form is program:
            assert OUTSIDE[-1].asked_for == [question.id]
            assert OUTSIDE[-1].ends == [True]

    run(main())


@pytest.mark.parametrize(("known", "result"), [("kept", "kept"), (KeyError("no"), "KeyError"), (LOST, "asked")])
def test_work_that_had_begun_is_found_out_after_a_restart(path, known, result):
    """What another program had got before a crash is not run again: it tells what became of it, or a person does."""

    async def caught(ctx):
        try:
            return await program(ctx)
        except KeyError:
            return "KeyError"

    async def main():
        OUTSIDE.append(Outside("wait"))
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(caught, pid="main")
            await settle(kernel)
        OUTSIDE.append(Outside("again", known=known))
        async with Kernel(path, programs=[caught]) as kernel:
            await settle(kernel)
            asked = kernel.interrupts.pending("main")
            assert len(asked) == (result == "asked")
            for question in asked:
                await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "asked"})
            assert (await kernel.spawn(caught, pid="main").wait()).result == result
        assert OUTSIDE[-1].runs == 0

    run(main())


def test_work_that_had_not_begun_is_run_after_a_restart(path):
    """Until the other program gets it, a restart simply performs the effect again."""

    async def main():
        OUTSIDE.append(Outside("wait", begins=False))
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
        OUTSIDE.append(Outside("again"))
        async with Kernel(path, programs=[program]) as kernel:
            assert (await kernel.spawn(program, pid="main").wait()).result == "again"
            assert kernel.interrupts.list_interrupts() == []

    run(main())


def test_an_answer_survives_a_crash(path):
    """A question that is answered while the kernel is down, or right before, is not asked again."""

    async def main():
        OUTSIDE.append(Outside(LOST))
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
        OUTSIDE.append(Outside("again", known=KeyError("not asked")))
        async with Kernel(path) as kernel:
            await kernel.resolve_interrupt(question.id, {"decision": "retry"})
            kernel.register(program)
            assert (await kernel.spawn(program, pid="main").wait()).result == "again"
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts()] == [question.id]

    run(main())


def test_a_call_that_is_given_up_is_not_durable(path):
    """The other program is told that its result was not kept."""

    async def main():
        OUTSIDE.append(Outside("wait"))
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program, pid="main")
            await settle(kernel)
            kernel.kill(handle)
            await handle.wait()
        assert OUTSIDE[-1].ends == [False]

    run(main())
