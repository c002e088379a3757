"""What a kernel writes down is heard by listeners once it is durable: each kind, caused by the work it tells of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.core.effect import Effect
from lyra.errors import StoreError
from lyra.kernel import Kernel
from lyra.testing import SimClock
from tests.kernel.conftest import Crash, pass_time, run, settle


class Heard:
    """The Events of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.events: list[Any] = []
        kernel.on_event(self.events.append)

    def of(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        return [(event.pid, dict(event.data)) for event in self.events if event.kind == kind]

    def one(self, kind: str) -> tuple[str, dict[str, Any]]:
        (found,) = self.of(kind)
        return found


async def forever(ctx):
    await ctx.receive()


# ---------------------------------------------------------------- processes
def test_a_program_waits_receives_and_saves(path, clock):
    async def program(ctx):
        await ctx.sleep(5)
        await ctx.receive()
        await ctx.checkpoint({"step": 1})
        await ctx.receive()

    async def main():
        async with Kernel(path, clock=clock) as kernel:
            heard = Heard(kernel)
            kernel.spawn(program, pid="main")
            await pass_time(kernel, clock, 6)
            await kernel.send("main", "hello")
            await settle(kernel)
            await kernel.durable()
            pid, timer = heard.one("timer.set")
            assert (pid, timer["due"]) == ("main", 1005.0)
            assert [pid for pid, _ in heard.of("message.received")] == ["main"]
            assert heard.one("program.checkpoint")[0] == "main"

    run(main())


def test_a_mark_of_text_from_outside_comes_and_goes_with_its_process(path):
    async def main():
        async with Kernel(path) as kernel:
            heard = Heard(kernel)
            kernel.spawn(forever, pid="reader")
            kernel.taint.mark("reader", "a page")
            await kernel.durable()
            assert heard.one("process.tainted") == ("reader", {"by": "a page"})
            await kernel.kill("reader")
            await kernel.process("reader").wait()
            kernel.taint.forget("reader")
            await kernel.durable()
            assert heard.one("process.unlabelled")[0] == "reader"
            assert not kernel.taint.is_tainted("reader")

    run(main())


def test_a_gate_that_moves_is_told(path, clock):
    """Each admission of an effect with a rate limit, by the name of the effect."""

    async def act():
        return 1

    limited = Effect(act, name="limited", rate_limit={"requests_per_minute": 5})

    async def program(ctx):
        return await ctx.do(limited)

    async def main():
        async with Kernel(path, clock=clock) as kernel:
            heard = Heard(kernel)
            await kernel.run(program)
            await kernel.durable()
            assert heard.of("gate.moved")
            assert all("limited" in str(data) for _, data in heard.of("gate.moved"))

    run(main())


# ---------------------------------------------------------------- what processes share
def test_groups_and_their_blackboards(path):
    async def main():
        async with Kernel(path) as kernel:
            heard = Heard(kernel)
            kernel.spawn(forever, pid="a")
            groups = kernel.groups
            groups.create("team")
            groups.join("team", "a")
            groups.bb_set("team", "color", "red")
            groups.bb_delete("team", "color")
            groups.leave("team", "a")
            groups.delete_group("team")
            await kernel.durable()
            kinds = [event.kind for event in heard.events if event.kind.startswith("group.")]
            assert kinds == [
                *("group.created", "group.joined", "group.set", "group.unset", "group.left", "group.deleted")
            ]
            assert {data["group"] for kind in kinds for _, data in heard.of(kind)} == {"team"}
            assert heard.one("group.joined")[0] == "a"
            assert heard.one("group.set")[1]["key"] == heard.one("group.unset")[1]["key"] == "color"

    run(main())


def test_memories(path):
    async def main():
        async with Kernel(path) as kernel:
            heard = Heard(kernel)
            item = kernel.memories.add("ada", "Tea is at four")
            await kernel.durable()
            _, added = heard.one("memory.added")
            assert (added["scope"], added["text"]) == ("ada", "Tea is at four")
            assert heard.of("memory.forgotten") == []
            assert kernel.memories.forget(item.id, scope="ada")
            await kernel.durable()
            assert len(heard.of("memory.forgotten")) == 1

    run(main())


# ---------------------------------------------------------------- entries of workers
def test_the_books_of_an_entry(path):
    """Its quota, what it used, the warning that is told once, the stage that works on it, its end in the books."""

    async def main():
        async with Kernel(path) as kernel:
            heard = Heard(kernel)
            kernel.resources.set_default_quota({"max_llm_calls": 7})
            kernel.submit("p", quota={"max_llm_calls": 5})
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.record_usage("p", llm_calls=4)
            kernel.lifecycle.note("p", current_stage="plan")
            kernel.terminate("p", force=True)
            kernel.cleanup_process("p")
            await kernel.durable()
            assert heard.one("pcb.default_quota")[1]["quota"]["max_llm_calls"] == 7
            assert heard.of("pcb.quota")[0][0] == "p"
            assert heard.one("pcb.used")[1]["amounts"] == {"llm_calls": 4}
            assert heard.one("pcb.said")[1]["level"] == "warning"
            assert heard.one("pcb.noted")[0] == "p"
            assert [heard.one(kind)[0] for kind in ("pcb.books_closed", "pcb.forgotten")] == ["p", "p"]

    run(main())


def test_questions_from_outside(path, clock):
    async def main():
        async with Kernel(path, clock=clock) as kernel:
            heard = Heard(kernel)
            kernel.interrupts.set_config("confirmation", {"default_ttl": 60.0})
            kernel.submit("p")
            question = kernel.create_interrupt("p", "confirmation", "Sure?")
            await kernel.resolve_interrupt(question.id, {"approved": True})
            await kernel.durable()
            assert heard.one("pcb.interrupt_config")[1]["kind"] == "confirmation"
            assert heard.one("pcb.interrupt_ended")[0] == "p"
            clock.advance(10)
            kernel.interrupts.cleanup_resolved(1)
            await kernel.durable()
            assert heard.one("pcb.interrupts_forgotten")[1]["ids"] == [question.id]

    run(main())


def test_rates_of_users(path, clock):
    async def main():
        async with Kernel(path, clock=clock, lease_s=1_000_000) as kernel:
            heard = Heard(kernel)
            limiter = kernel.rate_limiter
            limiter.set_user_limits("ada", {"requests_per_minute": 5})
            limiter.check_rate_limit("ada", "ask")
            limiter.reset_user("ada")
            limiter.check_rate_limit("bob", "ask")
            clock.advance(200_000)
            limiter.cleanup_expired()
            await kernel.durable()
            assert heard.one("rate.limited")[1]["name"] == "ada"
            assert [data["user"] for _, data in heard.of("rate.counted")] == ["ada", "bob"]
            assert heard.one("rate.reset")[1] == {"user": "ada"}
            assert len(heard.of("rate.forgotten")) == 1

    run(main())


def test_what_a_clock_ahead_wrote_is_set_back(path):
    """A kernel whose clock is behind that of the one before it: entries and requests count from now."""

    async def main():
        async with Crash(Kernel(path, clock=SimClock(9_000.0))) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.rate_limiter.check_rate_limit("ada", "ask")
            await kernel.durable()
        kernel = Kernel(path, clock=SimClock(1_000.0))
        heard = Heard(kernel)
        async with kernel:
            await kernel.durable()
            assert heard.one("pcb.set_back") == ("p", {"at": 1_000.0})
            assert heard.one("rate.set_back")[1] == {"at": 1_000.0}

    run(main())


# ---------------------------------------------------------------- pipelines
LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}


def test_pipelines_wait_go_on_and_end(path):
    """A question about one holds it up; an envelope of a caller is put in its place; ended by hand, it is forgotten."""

    async def main():
        async with Kernel(path) as kernel:
            heard = Heard(kernel)
            kernel.initialize_orchestration("p", LINE)
            question = kernel.create_interrupt("p", "confirmation", "Go on?")
            kernel.get_next_instruction("p")
            await kernel.durable()
            assert heard.of("pipeline.waiting")[0][0] == "p"
            await kernel.resolve_interrupt(question.id, {"approved": True})
            kernel.get_next_instruction("p")
            await kernel.durable()
            assert heard.one("pipeline.resumed")[0] == "p"
            kernel.store_envelope("p", {"raw_input": "another"})
            await kernel.durable()
            assert heard.one("pipeline.restored")[1]["session"]["envelope"]["raw_input"] == "another"
            await kernel.orchestrator.terminate_session("p", message="enough")
            assert "enough" in str(heard.one("pipeline.terminated")[1])
            assert kernel.orchestrator.cleanup_session("p")
            await kernel.durable()
            assert heard.one("pipeline.forgotten")[0] == "p"

    run(main())


# ---------------------------------------------------------------- the store
def test_a_store_that_fails_is_told(path, monkeypatch):
    async def main():
        kernel = Kernel(path)
        await kernel.start()
        heard = Heard(kernel)

        def broken(*_: Any, **__: Any) -> None:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(kernel.journal.store, "append", broken)
        kernel.spawn(forever)
        with pytest.raises(StoreError):
            await kernel.durable()
        await asyncio.sleep(0)
        assert "the disk is gone" in heard.one("store.failed")[1]["message"]
        await kernel.close()

    run(main())


def test_a_snapshot_that_cannot_be_written_is_told(path, monkeypatch):
    """And ends nothing."""

    async def act():
        return 1

    async def program(ctx):
        for _ in range(40):
            await ctx.do(act)

    async def main():
        async with Kernel(path, snapshot_every_events=10) as kernel:
            heard = Heard(kernel)

            def broken(*_: Any, **__: Any) -> None:
                raise StoreError("no room for it")

            monkeypatch.setattr(kernel.journal.store, "load_snapshots", broken)
            await kernel.run(program)
            await settle(kernel)
            for _ in range(200):
                if heard.of("snapshot.failed"):
                    break
                await asyncio.sleep(0.01)
            assert heard.of("snapshot.failed")[0][1] == {"message": "no room for it"}
            monkeypatch.undo()

    run(main())
