"""Questions to a human that come from outside a program: `InterruptService`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.errors import ConfigError, DeadlineExceeded, Denied, InvalidTransition, NoSuchInterrupt, StoreFull
from lyra.kernel import Answer, FlowInterrupt, InterruptConfig, InterruptKind, InterruptStatus, Kernel
from lyra.kernel.interrupts.service import KINDS, STATUSES
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import Crash, pass_time, run, settle
from tests.kernel.journal.test_store_failures import Failing
from tests.kernel.workers.test_lifecycle import Rows


async def asks(ctx, kind="clarification"):
    return (await ctx.ask("go on?", kind=kind)).text


def running(kernel: Kernel, pid: str = "p", **options: Any) -> None:
    kernel.submit(pid, **options)
    kernel.transition_state(pid, "ready")
    kernel.transition_state(pid, "running")


def test_the_table_of_kinds():
    """Time to live, whether it ends by itself and whether an answer is needed, for each row of `KINDS`."""
    assert {kind: (rules.default_ttl, rules.auto_expire, rules.require_response) for kind, rules in KINDS.items()} == {
        "clarification": (86400.0, True, True),
        "confirmation": (3600.0, True, True),
        "agent_review": (1800.0, True, True),
        "checkpoint": (None, False, False),
        "resource_exhausted": (300.0, True, False),
        "timeout": (300.0, True, False),
        "system_error": (3600.0, True, False),
        "in_doubt": (None, False, True),
    }
    assert list(KINDS) == [kind.value for kind in InterruptKind]
    assert tuple(InterruptStatus) == STATUSES


@pytest.mark.parametrize("listens", [False, True])
def test_a_question_that_no_listener_hears_of_is_a_line_in_the_log(caplog, listens):
    """Its program waits for the whole time to live; a program that listens for questions is told by its Event."""

    async def main():
        async with Kernel(programs=[asks]) as kernel:
            heard: list[Any] = []
            if listens:
                kernel.on_event(heard.append, "interrupt.created")
            kernel.spawn(asks, pid="p")
            await settle(kernel)
            assert len(heard) == listens

    run(main())
    lines = [record.getMessage() for record in caplog.records if "waits for a person: go on?" in record.getMessage()]
    assert len(lines) == (not listens)


def test_the_age_of_ended_questions_is_a_number(target, clock):
    async def main():
        async with Kernel(target, clock) as kernel:
            for wrong in (None, -1.0, "1", float("nan")):
                with pytest.raises(ConfigError, match="age_s"):
                    kernel.interrupts.cleanup_resolved(wrong)  # type: ignore[arg-type]

    run(main())


def test_a_question_and_its_answer(target, clock):
    """It carries its owner's ids; a running entry waits for it and is ready again when it is answered."""

    async def main():
        async with Kernel(target, clock) as kernel:
            running(kernel, user_id="ada", request_id="r", session_id="s")
            interrupt = kernel.create_interrupt(
                "p",
                "CLARIFICATION",
                "which one?",
                question="red or blue",
                data={"options": ["red", "blue"]},
                envelope_id="e",
                trace_id="t",
                span_id="x",
            )
            assert isinstance(interrupt, FlowInterrupt)
            assert (len(interrupt.id), interrupt.id[:4], interrupt.kind, interrupt.status) == (
                20,
                "int_",
                "clarification",
                "pending",
            )
            assert (interrupt.message, interrupt.question) == ("which one?", "red or blue")
            assert (interrupt.user_id, interrupt.request_id, interrupt.session_id) == ("ada", "r", "s")
            assert (interrupt.envelope_id, interrupt.trace_id, interrupt.span_id) == ("e", "t", "x")
            assert (interrupt.created_at, interrupt.expires_at) == (1000.0, 1000.0 + 86400)
            assert kernel.get_pending_interrupt("p") == interrupt
            block = kernel.get_process("p")
            assert (block.state, block.pending_interrupt, block.interrupt_data["id"]) == (
                "waiting",
                "clarification",
                interrupt.id,
            )
            clock.advance(5)
            await kernel.resolve_interrupt(interrupt.id, {"text": "red", "data": {"n": 1}}, user_id="ada")
            ended = kernel.interrupts.get_interrupt(interrupt.id)
            assert (ended.status, ended.resolved_at) == ("resolved", 1005.0)
            assert ended.response == Answer(text="red", data={"n": 1}, received_at=1005.0)
            assert ended.data == {"options": ["red", "blue"]}
            assert kernel.get_pending_interrupt("p") is None
            assert kernel.get_process("p").state == "ready"
            assert kernel.get_next_runnable().pid == "p"

    run(main())


def test_a_value_does_not_change_the_kernels():
    """What a caller holds is a copy."""

    async def main():
        async with Kernel() as kernel:
            running(kernel)
            interrupt = kernel.create_interrupt("p", "confirmation", "sure?")
            interrupt.status = "resolved"
            assert kernel.interrupts.get_status(interrupt.id) == "pending"

    run(main())


@pytest.mark.parametrize(
    ("response", "user_id", "error"),
    [
        ({"text": "yes"}, "bob", Denied),
        ({}, "ada", ConfigError),
        ({"txt": "yes"}, "ada", ConfigError),
        ({"approved": "perhaps"}, "ada", ConfigError),
        (7, "ada", ConfigError),
        ({"data": object()}, "ada", ConfigError),
    ],
)
def test_refused_answers_change_nothing(target, response, user_id, error):
    """A wrong owner is Denied; an empty or malformed answer is refused; the question stays."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel, user_id="ada")
            interrupt = kernel.create_interrupt("p", "confirmation", "sure?")
            with pytest.raises(error):
                kernel.resolve_interrupt(interrupt.id, response, user_id=user_id)
            assert kernel.get_pending_interrupt("p") == interrupt
            assert kernel.get_process("p").state == "waiting"

    run(main())


def test_who_may_answer():
    """An answer without a name, or to a question without an owner, is not asked who it is."""

    async def main():
        async with Kernel() as kernel:
            running(kernel, "owned", user_id="ada")
            running(kernel, "free")
            for pid, user in (("owned", None), ("owned", ""), ("owned", "ada"), ("free", "bob")):
                interrupt = kernel.create_interrupt(pid, "confirmation", "sure?")
                assert kernel.interrupts.resolve_interrupt(interrupt.id, {"approved": False}, user).status == "resolved"
            interrupt = kernel.create_interrupt("free", "confirmation", "sure?", user_id="eve")
            with pytest.raises(Denied):
                kernel.resolve_interrupt(interrupt.id, {"approved": True}, "bob")

    run(main())


def test_kinds_that_need_no_answer():
    """A checkpoint is resolved by an empty answer."""

    async def main():
        async with Kernel() as kernel:
            running(kernel)
            interrupt = kernel.create_interrupt("p", "checkpoint", "saved")
            assert interrupt.expires_at is None
            kernel.resolve_interrupt(interrupt.id, {})
            assert kernel.interrupts.get_status(interrupt.id) == "resolved"

    run(main())


def test_an_ended_question_stays_ended(target, clock):
    """Answered, cancelled and expired questions refuse a second end; unknown ids are named."""

    async def main():
        async with Kernel(target, clock) as kernel:
            running(kernel)
            ids = [kernel.create_interrupt("p", "timeout", "?").id for _ in range(3)]
            kernel.resolve_interrupt(ids[0], {"text": "a"})
            assert kernel.interrupts.cancel_interrupt(ids[1], "not needed").reason == "not needed"
            clock.advance(300)
            assert [kernel.interrupts.get_status(interrupt_id) for interrupt_id in ids] == [
                "resolved",
                "cancelled",
                "expired",
            ]
            for interrupt_id in ids:
                for call in (
                    kernel.interrupts.cancel_interrupt,
                    lambda interrupt_id: kernel.resolve_interrupt(interrupt_id, {}),
                ):
                    with pytest.raises(InvalidTransition, match="already"):
                        call(interrupt_id)
            for look in (
                lambda: kernel.interrupts.cancel_interrupt("int_none"),
                lambda: kernel.interrupts.get_interrupt("int_none"),
                lambda: kernel.interrupts.get_status("int_none"),
            ):
                with pytest.raises(NoSuchInterrupt, match="no interrupt") as caught:
                    look()
                assert caught.value.hint
            with pytest.raises(NoSuchInterrupt):
                kernel.resolve_interrupt("int_none", {"text": "x"})

    run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "clarificaton"},
        {"kind": None},
        {"message": 3},
        {"question": "\ud800"},
        {"ttl_s": 0},
        {"ttl_s": float("nan")},
        {"data": object()},
        {"user_id": 3},
    ],
)
def test_a_bad_question_is_not_asked(target, options):
    """Unknown kinds (with a hint), texts that are none and lives that are none are ConfigErrors."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel)
            with pytest.raises(ConfigError):
                kernel.create_interrupt("p", **{"kind": "clarification", "message": "m", **options})
            assert kernel.interrupts.list_interrupts() == []
            assert kernel.get_process("p").state == "running"

    run(main())


def test_the_dead_ask_nothing(target):
    """The end of a process cancels its questions, and it asks no more."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel)
            interrupt = kernel.create_interrupt("p", "clarification", "?")
            kernel.terminate("p", "over", force=True)
            ended = kernel.interrupts.get_interrupt(interrupt.id)
            assert (ended.status, ended.reason) == ("cancelled", "its process ended")
            with pytest.raises(InvalidTransition, match="has ended"):
                kernel.create_interrupt("p", "clarification", "?")
            await kernel.cleanup_process("p")
            assert kernel.interrupts.list_interrupts() == []

    run(main())


def test_several_questions(target, clock):
    """The oldest that can still be answered is the pending one; the entry waits for all."""

    async def main():
        async with Kernel(target, clock) as kernel:
            running(kernel)
            first = kernel.create_interrupt("p", "timeout", "1")
            clock.advance(1)
            second = kernel.create_interrupt("p", "confirmation", "2")
            third = kernel.create_interrupt("p", "agent_review", "3")
            assert kernel.get_pending_interrupt("p").id == first.id
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts("p")] == [
                first.id,
                second.id,
                third.id,
            ]
            clock.advance(299)
            assert kernel.get_pending_interrupt("p").id == second.id
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts("p", status="Expired")] == [
                first.id
            ]
            kernel.resolve_interrupt(third.id, {"text": "x"})
            assert kernel.get_process("p").state == "waiting"
            kernel.interrupts.cancel_interrupt(second.id)
            assert kernel.get_process("p").state == "ready"
            assert not kernel.interrupts.has_pending("p")
            with pytest.raises(ConfigError):
                kernel.interrupts.list_interrupts(status="open")

    run(main())


def test_expiry_without_the_timer(clock):
    """A question whose time is over is not pending, also before its timer rings; `expire_old_interrupts` ends it."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            running(kernel, "a")
            running(kernel, "b")
            interrupt = kernel.create_interrupt("a", "timeout", "?", ttl_s=10)
            two = kernel.create_interrupt("b", "timeout", "?", ttl_s=10)
            clock.stall(10)  # no timer rings
            assert kernel.get_pending_interrupt("a") is None
            assert not kernel.interrupts.has_pending("a")
            with pytest.raises(InvalidTransition, match="expired already"):
                kernel.resolve_interrupt(interrupt.id, {"text": "late"})
            assert kernel.interrupts.expire_old_interrupts() == 1
            assert kernel.interrupts.get_status(two.id) == "expired"
            assert [kernel.get_process(pid).state for pid in "ab"] == ["ready", "ready"]

    run(main())


@pytest.mark.parametrize("jump_s", [-1e6, 1e9])
def test_a_wall_clock_that_jumps_changes_no_expiry(clock, jump_s):
    """A question lives as long as it was given, whatever happens to the wall clock meanwhile."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            running(kernel, "a")
            question = kernel.create_interrupt("a", "timeout", "?", ttl_s=10)
            clock.jump(jump_s)
            clock.advance(9)
            assert kernel.get_pending_interrupt("a").id == question.id
            clock.advance(1)
            assert kernel.get_pending_interrupt("a") is None

    run(main())


def test_a_question_asked_by_a_clock_ahead_expires_all_the_same(path, clock):
    """Asked when the clock was years ahead, it lives at most its time to live once the clock is right."""

    async def main():
        async with Kernel(path, SimClock(clock.now() + 1e9), [asks]) as kernel:
            await kernel.spawn(asks, "timeout", pid="p")
            running(kernel, "a")
            kernel.create_interrupt("a", "timeout", "?", ttl_s=10)
        async with Kernel(path, clock, [asks]) as kernel:
            await settle(kernel)
            clock.advance(10)
            assert kernel.get_pending_interrupt("a") is None
            clock.advance(kernel.interrupts.configs["timeout"].default_ttl)
            assert isinstance((await kernel.process("p").wait()).error, DeadlineExceeded)

    run(main())


def test_configs(clock):
    """`set_config` changes time to live, expiry and the need for an answer of a kind; unknown keys are refused."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            running(kernel)
            service = kernel.interrupts
            service.set_config("timeout", InterruptConfig(5.0, auto_expire=False, require_response=True))
            interrupt = kernel.create_interrupt("p", "timeout", "?")
            assert interrupt.expires_at == 1005.0
            clock.advance(10)
            assert service.expire_old_interrupts() == 0
            assert kernel.get_pending_interrupt("p").id == interrupt.id
            with pytest.raises(ConfigError, match="needs an answer"):
                kernel.resolve_interrupt(interrupt.id, {})
            service.set_config("Timeout", {"default_ttl": 2})
            interrupt = kernel.create_interrupt("p", "timeout", "?")
            clock.advance(2)
            assert service.get_status(interrupt.id) == "expired"
            wrong: list[tuple[str, Any]] = [
                ("tmeout", {}),
                ("timeout", {"ttl": 3}),
                ("timeout", {"default_ttl": -1}),
                ("timeout", {"auto_expire": 1}),
                ("timeout", 3),
            ]
            for kind, config in wrong:
                with pytest.raises(ConfigError):
                    service.set_config(kind, config)
            assert Kernel().interrupts.configs["timeout"].default_ttl == 300.0

    run(main())


def test_programs_and_their_questions(target):
    """A program's own question is found, listed and answered by the same methods; one from outside ends with it."""

    async def main():
        async with Kernel(target) as kernel:
            await kernel.spawn(asks, pid="p")
            await settle(kernel)
            own = kernel.get_pending_interrupt("p")
            assert (own.question, own.kind) == ("go on?", "clarification")
            outside = kernel.create_interrupt("p", "agent_review", "look at it", user_id="ada")
            assert kernel.interrupts.has_pending("p")
            assert {interrupt.id for interrupt in kernel.interrupts.list_interrupts("p")} == {own.id, outside.id}
            assert kernel.get_process("p").pending_interrupt == "clarification"
            assert [interrupt.id for interrupt in kernel.interrupts.pending()] == [own.id]
            await kernel.resolve_interrupt(own.id, {"text": "on"}, user_id="anybody")
            assert (await kernel.process("p").wait()).result == "on"
            assert kernel.interrupts.get_interrupt(outside.id).status == "cancelled"
            counts = kernel.interrupts.get_counts()
            assert (counts["resolved"], counts["cancelled"], counts["pending"]) == (1, 1, 0)

    run(main())


def test_a_program_gets_no_answer_that_is_not_stored(clock):
    """While the store is full the program stands still: a restart could ask its question once more."""
    store, heard = Failing(), []

    async def listens(ctx):
        heard.append((await ctx.ask("go on?")).text)

    async def main():
        async with Kernel(store, clock) as kernel:
            handle = await kernel.spawn(listens, pid="p")
            await settle(kernel)
            store.error = StoreFull("no room")
            with pytest.raises(StoreFull):
                await kernel.resolve_interrupt(kernel.get_pending_interrupt("p").id, {"text": "on"})
            await settle(kernel)
            assert heard == []
            store.error = None
            await pass_time(kernel, clock, 2)
            await handle.wait()
            assert heard == ["on"]

    run(main())


def test_a_programs_question_expires_by_hand_too(clock):
    """`expire_old_interrupts` ends a program's question whose time is over; the program is told."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            handle = kernel.spawn(asks, "timeout", pid="p")
            await settle(kernel)
            clock.stall(300)
            assert kernel.interrupts.expire_old_interrupts() == 1
            assert isinstance((await handle.wait()).error, DeadlineExceeded)

    run(main())


def test_events(target, clock):
    """Created, resolved, expired and cancelled are Events with the question's facts."""

    async def main():
        seen: list[tuple[str, dict[str, Any]]] = []
        async with Kernel(target, clock) as kernel:
            kernel.on_event(
                lambda event: seen.append((event.kind, dict(event.data))) if event.kind.startswith("interrupt.") else 0
            )
            running(kernel, user_id="ada")
            ids = [kernel.create_interrupt("p", "timeout", "m", question="q").id for _ in range(3)]
            kernel.resolve_interrupt(ids[0], {"text": "a"})
            kernel.interrupts.cancel_interrupt(ids[1])
            clock.advance(300)
        assert [kind.split(".")[1] for kind, _ in seen] == ["created"] * 3 + ["resolved", "cancelled", "expired"]
        assert [data["id"] for _, data in seen] == ids * 2
        assert all(data["kind"] == "timeout" and data["user_id"] == "ada" for _, data in seen)
        assert (seen[0][1]["question"], seen[3][1]["response"]["text"]) == ("q", "a")

    run(main())


def test_ended_questions_are_bounded(monkeypatch):
    """Only so many ended questions can be looked up; the oldest end goes first."""
    monkeypatch.setattr("lyra.kernel.interrupts.interrupt.ENDED_INTERRUPTS_KEPT", 2)

    async def main():
        async with Kernel() as kernel:
            running(kernel)
            ids = [kernel.create_interrupt("p", "timeout", "m").id for _ in range(4)]
            for interrupt_id in ids[:3]:
                kernel.resolve_interrupt(interrupt_id, {"text": "a"})
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts()] == ids[1:]

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_questions_survive_a_kill(path, clock, snapshot):
    """Pending ones come back with all their fields and the rest of their time; ended ones stay ended."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            running(kernel, user_id="ada")
            running(kernel, "q")
            pending = kernel.create_interrupt("p", "confirmation", "m", question="q", data={"a": [1]}, trace_id="t")
            answered = kernel.create_interrupt("p", "clarification", "m")
            short = kernel.create_interrupt("q", "timeout", "m")
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            kernel.resolve_interrupt(answered.id, {"text": "yes", "data": 3})
            await settle(kernel)
            before = kernel.interrupts.list_interrupts()
        clock.advance(299)
        async with Kernel(path, clock) as kernel:
            assert [
                (interrupt.id, interrupt.status, interrupt.response, interrupt.data)
                for interrupt in kernel.interrupts.list_interrupts()
            ] == [(interrupt.id, interrupt.status, interrupt.response, interrupt.data) for interrupt in before]
            assert kernel.get_pending_interrupt("p") == pending
            assert kernel.get_pending_interrupt("q") == short
            clock.advance(1)
            assert kernel.interrupts.get_status(short.id) == "expired"
            assert [kernel.get_process(pid).state for pid in "pq"] == ["waiting", "ready"]
            with pytest.raises(Denied):
                kernel.resolve_interrupt(pending.id, {"approved": True}, user_id="bob")
            await kernel.resolve_interrupt(pending.id, {"approved": True}, user_id="ada")
            assert kernel.get_process("p").state == "ready"

    run(main())


# ---------------------------------------------------------------- all of it at once
class Questions(RuleBasedStateMachine):
    """Random questions against a list of them with their end."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimClock(1_000.0)
        self.world = Rows(self.clock)
        self.kernel = self.world.kernel
        self.asked: dict[str, dict[str, Any]] = {}
        for pid in "ab":
            running(self.kernel, pid, user_id=pid)

    def _is_over(self, asked: dict[str, Any]) -> bool:
        return bool(asked["status"] != "pending")

    def _pass(self) -> None:
        for question in self.asked.values():
            if (
                question["status"] == "pending"
                and question["expires"] is not None
                and self.clock.now() >= question["expires"]
            ):
                question["status"] = "expired"

    @rule(pid=st.sampled_from("ab"), kind=st.sampled_from(sorted(set(KINDS) - {"in_doubt"})))
    def ask(self, pid: str, kind: str) -> None:
        try:
            interrupt = self.kernel.create_interrupt(pid, kind, "?")
        except InvalidTransition:
            assert self.kernel.get_process(pid).terminal
        else:
            self.asked[interrupt.id] = {"pid": pid, "kind": kind, "status": "pending", "expires": interrupt.expires_at}

    @rule(index=st.integers(0, 9), text=st.sampled_from(["", "yes"]), user=st.sampled_from(["", "a", "b"]))
    def answer(self, index: int, text: str, user: str) -> None:
        if not self.asked:
            return
        key = list(self.asked)[index % len(self.asked)]
        question = self.asked[key]
        try:
            self.kernel.resolve_interrupt(key, {"text": text}, user_id=user)
        except InvalidTransition:
            assert self._is_over(question)
        except Denied:
            assert user not in ("", question["pid"])
        except ConfigError:
            assert not text
            assert KINDS[question["kind"]].require_response
        else:
            assert not self._is_over(question)
            question["status"] = "resolved"

    @rule(index=st.integers(0, 9))
    def cancel(self, index: int) -> None:
        if not self.asked:
            return
        key = list(self.asked)[index % len(self.asked)]
        try:
            self.kernel.interrupts.cancel_interrupt(key)
        except InvalidTransition:
            assert self._is_over(self.asked[key])
        else:
            assert not self._is_over(self.asked[key])
            self.asked[key]["status"] = "cancelled"

    @rule(seconds=st.sampled_from([1.0, 299.0, 300.0, 1800.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._pass()

    @rule(pid=st.sampled_from("ab"))
    def take_up(self, pid: str) -> None:
        if self.kernel.get_process(pid).state == "ready":
            try:
                self.kernel.transition_state(pid, "running")
            except InvalidTransition:
                assert self.kernel.interrupts.has_pending(pid)

    @rule()
    def end(self) -> None:
        self.kernel.terminate("b", force=True)
        for question in self.asked.values():
            if question["pid"] == "b" and question["status"] == "pending":
                question["status"] = "cancelled"

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "kernel"):
            return
        statuses = {interrupt.id: interrupt.status for interrupt in self.kernel.interrupts.list_interrupts()}
        assert statuses == {key: question["status"] for key, question in self.asked.items()}
        for pid in "ab":
            pending = [
                key
                for key, question in self.asked.items()
                if question["pid"] == pid and question["status"] == "pending"
            ]
            oldest = self.kernel.get_pending_interrupt(pid)
            assert (oldest.id if oldest is not None else None) == (pending[0] if pending else None)
            if not pending:
                assert self.kernel.get_process(pid).state != "waiting"

    def teardown(self) -> None:
        self.world.close()


Questions.TestCase.settings = settings(max_examples=cases(30), stateful_step_count=30, deadline=None)
test_random_questions = Questions.TestCase


def test_a_question_may_belong_to_another_request(target):
    """The ids that are said go before those of the process."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel, user_id="ada", request_id="r", session_id="s")
            kernel.interrupts.create_interrupt("p", "clarification", "?", request_id="other", session_id="later")
            interrupt = kernel.get_pending_interrupt("p")
            return interrupt.request_id, interrupt.session_id, interrupt.user_id

    assert run(main()) == ("other", "later", "ada")


def test_only_its_user_answers_a_question(target):
    """`resolve_interrupt(…, user_id=…)`: another user is denied, and the question stays open."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel, user_id="ada")
            asked = kernel.create_interrupt("p", "clarification", "?")
            with pytest.raises(Denied):
                kernel.interrupts.resolve_interrupt(asked.id, {"text": "mine"}, user_id="bob")
            assert kernel.get_pending_interrupt("p") is not None
            return kernel.interrupts.resolve_interrupt(asked.id, {"text": "mine"}, user_id="ada").status

    assert run(main()) == "resolved"


def test_an_answer_has_its_time(target, clock):
    """That of the kernel's clock, when the answer came; the program that asked reads it, too."""
    seen: list[Any] = []

    async def waits(ctx):
        seen.append((await ctx.ask("go on?")).received_at)

    async def main():
        async with Kernel(target, clock, programs=[waits]) as kernel:
            process = kernel.spawn(waits, pid="p")
            await settle(kernel)
            clock.advance(7.0)
            kernel.resolve_interrupt(kernel.get_pending_interrupt("p").id, {"text": "yes"})
            await process.wait()

    run(main())
    assert seen == [1_007.0]


def test_the_questions_of_one_process(target):
    """And of all, where none is named."""

    async def asks(ctx, text):
        await ctx.ask(text)

    async def main():
        async with Kernel(target) as kernel:
            for name in ("a", "b"):
                kernel.spawn(asks, f"{name}?", pid=name)
            await settle(kernel)
            for listed in (kernel.interrupts.pending, kernel.interrupts.list_interrupts):
                assert sorted(interrupt.pid for interrupt in listed()) == ["a", "b"]
                assert [interrupt.pid for interrupt in listed("b")] == ["b"]

    run(main())
