"""The work desk over a real kernel and store, in virtual time: workers are calls of the desk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import EffectInDoubt, NameTaken, NoSuchAgent, OutcomeUnknown, Overloaded
from lyra.kernel import AgentResult
from lyra.kernel.journal.lease import Ownership
from lyra.kernel.kernel import Kernel
from lyra.kernel.pipelines.runner import Runner
from lyra.server.work.desk import WorkDesk, WorkQueue
from lyra.server.work.names import Claim, ServedName, WorkLease
from lyra.testing import run_in_virtual_time
from tests.kernel.conftest import crash

WRITE = frozenset({ServedName("agent", "write")})
MAIL = frozenset({ServedName("service", "mail")})
ONE_STAGE = {"name": "p", "agents": [{"name": "write"}]}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def claim_of(worker_id: str = "w1", **options: Any) -> Claim:
    return Claim(**{"worker_id": worker_id, "names": WRITE, "lease_s": 10.0, "wait_s": 30.0, **options})


async def lent(desk: WorkDesk, worker_id: str = "w1", **options: Any) -> WorkLease:
    lease = await desk.claim(claim_of(worker_id, **options))
    assert lease is not None
    return lease


class Run:
    """A pipeline of one remote stage that runs in the background."""

    def __init__(self, kernel: Kernel, pid: str = "run", config: dict[str, Any] = ONE_STAGE, **envelope: Any) -> None:
        self.events: list[Any] = []
        self._kernel, self._pid = kernel, pid
        given = {"raw_input": "text", **envelope}
        self._task = asyncio.ensure_future(self._read(config, given))

    async def _read(self, config: dict[str, Any], envelope: Any) -> None:
        async for event in self._kernel.execute_pipeline(config, envelope, pid=self._pid):
            self.events.append(event)

    async def end(self) -> tuple[str, Any]:
        """Why the pipeline ended, and the outputs."""
        await asyncio.wait_for(self._task, 1_000.0)
        envelope = self.events[-1].envelope
        return str(envelope.terminal_reason), envelope.outputs

    async def question(self) -> Any:
        """The question that is open, as soon as there is one."""
        for _ in range(1_000):
            interrupt = self._kernel.get_pending_interrupt(self._pid)
            if interrupt is not None:
                return interrupt
            await asyncio.sleep(0.1)
        raise AssertionError("no question was asked")


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(path: str) -> None:
        run_in_virtual_time(test(path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_virtual_time
async def test_a_remote_agent_runs_a_stage(path: str) -> None:
    """While a worker serves a name, pipelines reach it; its result becomes the output, and is durable when taken."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        with pytest.raises(NoSuchAgent):
            await kernel.execute_agent("write", "text")
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        lease = await lent(desk)
        assert lease.piece.payload.stage_run.envelope.raw_input == "text"
        assert await desk.complete(lease.work_id, "w1", AgentResult(output={"n": 1}, metrics={"llm_calls": 2}))
        assert await run.end() == ("completed", {"write": {"n": 1}})
        assert kernel.get_envelope("run").llm_call_count == 2
        assert await desk.complete(lease.work_id, "w1", AgentResult(output={"n": 2}))
        assert not await desk.complete(lease.work_id, "w2", AgentResult(output={"n": 3}))


async def first_run(path: str, raw_input: str, *, ends: bool = True) -> WorkLease:
    """Lend the first run of a pipeline to a worker, in one life of the store."""
    kernel = Kernel(path)
    await kernel.start()
    desk = WorkDesk(kernel)
    await desk.claim(claim_of(announce=True))
    run = Run(kernel, raw_input=raw_input)
    lease = await lent(desk)
    if not ends:
        crash(kernel)
        return lease
    await desk.complete(lease.work_id, "w1", AgentResult(output={"n": 1}))
    await run.end()
    await kernel.close()
    return lease


@in_virtual_time
async def test_the_key_of_a_run_is_that_of_what_it_asks(path: str) -> None:
    """Equal requests end in one digest, whatever their store and their time; another request in another one."""
    texts = ("pay 1", "pay 1", "pay 70")
    keys = [(await first_run(f"{path}.{number}", text)).piece.id for number, text in enumerate(texts)]
    digests = [key.rpartition(":")[2] for key in keys]
    assert digests[0] == digests[1] != digests[2]


@in_virtual_time
async def test_a_restored_backup_reuses_no_key_of_a_run(path: str) -> None:
    """A store that was copied while it was closed, and put back after the original had gone on."""
    async with Kernel(path):
        pass
    backup = shutil.copy(path, f"{path}.backup")
    keys = [(await first_run(copy, "pay 5")).piece.id for copy in (path, backup)]
    assert keys[0] != keys[1]


async def no_generation(_ownership: Ownership, _nonce: str) -> str:
    """Return the generation of a version that had none."""
    return ""


@pytest.mark.parametrize("version", ["earlier", "present"])
def test_a_run_has_one_key_in_all_lives(path: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was lent by a version whose keys had neither a generation nor a digest: its worker may come back
    with the result, and what it has paid for is known outside under that key."""

    async def main() -> None:
        with monkeypatch.context() as patch:
            if version == "earlier":
                patch.setattr(Ownership, "generation", no_generation)
                patch.setattr(Runner, "_digest_request", lambda *_: ())
            lease = await first_run(path, "text", ends=False)
        assert lease.piece.id.endswith(":run-1") == (version == "earlier")
        async with Kernel(path) as kernel:
            desk = WorkDesk(kernel)
            await desk.claim(claim_of(announce=True))
            run = Run(kernel)
            assert await desk.complete(lease.work_id, "w1", AgentResult(output={"n": 1}))
            assert await run.end() == ("completed", {"write": {"n": 1}})

    run_in_virtual_time(main())


@in_virtual_time
async def test_names_are_forgotten_with_their_last_worker(path: str) -> None:
    """A name that no worker serves any more is unknown to the kernel; the server's own names are never taken."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        assert kernel.orchestrator.agents.names() == ["write"]
        await asyncio.sleep(31.0)
        assert kernel.orchestrator.agents.names() == []
        await desk.claim(claim_of(announce=True))
        await desk.claim(claim_of(names=frozenset(), announce=True))
        assert kernel.orchestrator.agents.names() == []

        async def own(envelope: Any) -> dict[str, Any]:
            return {}

        kernel.register_agent("write", own)
        with pytest.raises(NameTaken):
            await desk.claim(claim_of())


@in_virtual_time
async def test_a_claim_waits_for_work_and_ends_when_the_server_stops(path: str) -> None:
    """A claim without work returns after its wait; those that wait when the server stops return at once."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        began = kernel.clock.monotonic()
        assert await desk.claim(claim_of(wait_s=5.0)) is None
        assert kernel.clock.monotonic() - began == pytest.approx(5.0, abs=0.1)
        waiting = asyncio.ensure_future(desk.claim(claim_of()))
        await asyncio.sleep(1.0)
        desk.close()
        assert await waiting is None
        assert kernel.clock.monotonic() - began < 7.0


@in_virtual_time
async def test_each_piece_wakes_one_claim_and_none_is_left_asleep(path: str) -> None:
    """Many claims wait; each piece goes at once to one of them, also when the one that was woken breaks off."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        claims = [asyncio.ensure_future(desk.claim(claim_of(f"w{number}"))) for number in range(5)]
        await asyncio.sleep(1.0)
        began = kernel.clock.monotonic()
        runs = [Run(kernel, f"run{number}") for number in range(3)]
        while not any(change.done() for change, _ in desk._waiters) and len(desk._waiters) == 5:
            await asyncio.sleep(0)
        claims[0].cancel()
        done = []
        while len(done) < 3:
            done = [claim for claim in claims[1:] if claim.done()]
            await asyncio.sleep(0.01)
        assert kernel.clock.monotonic() - began < 1.0
        for claim in done:
            lease = claim.result()
            assert lease is not None
            assert await desk.complete(lease.work_id, lease.worker_id, AgentResult(output={"n": 1}))
        assert [(await run.end())[0] for run in runs] == ["completed"] * 3
        desk.close()
        await asyncio.gather(*claims, return_exceptions=True)


@in_virtual_time
async def test_idempotent_work_of_a_lost_worker_is_done_by_another(path: str) -> None:
    """A worker that is silent for a lease loses its work; another gets it, and a late result is not wanted."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        first = await lent(desk, idempotent=frozenset({"write"}))
        second = await lent(desk, "w2")
        assert second.piece.attempt == 2
        assert not await desk.complete(first.work_id, "w1", AgentResult(output={"from": "w1"}))
        assert await desk.complete(second.work_id, "w2", AgentResult(output={"from": "w2"}))
        assert await run.end() == ("completed", {"write": {"from": "w2"}})
        assert not [event for event in run.events if event.type == "interrupt_raised"]


@pytest.mark.parametrize(
    ("answer", "reason", "outputs"),
    [
        ({"decision": "retry"}, "completed", {"write": {"again": True}}),
        ({"decision": "skip", "data": {"by": "hand"}}, "completed", {"write": {"by": "hand"}}),
        ({"decision": "fail"}, "tool_failed_fatally", {}),
    ],
)
def test_work_of_a_lost_worker_is_in_doubt(path: str, answer: dict[str, Any], reason: str, outputs: Any) -> None:
    """What may not be repeated is a question to a person: retry performs it again, skip gives the data, fail fails."""

    async def main() -> None:
        async with Kernel(path) as kernel:
            desk = WorkDesk(kernel)
            await desk.claim(claim_of(announce=True))
            run = Run(kernel)
            first = await lent(desk)
            interrupt = await run.question()
            assert (interrupt.kind, interrupt.pid) == ("in_doubt", "run")
            await kernel.resolve_interrupt(interrupt.id, answer)
            if answer["decision"] == "retry":
                second = await lent(desk, "w2")
                assert second.work_id != first.work_id
                assert not await desk.complete(first.work_id, "w1", AgentResult())
                assert await desk.complete(second.work_id, "w2", AgentResult(output={"again": True}))
            assert await run.end() == (reason, outputs)
            assert not await desk.complete(first.work_id, "w1", AgentResult())
            assert not desk._queue.pieces

    run_in_virtual_time(main())


@in_virtual_time
async def test_work_that_is_lost_again_is_asked_about_again(path: str) -> None:
    """Each loss is a question of its own."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        asked = []
        for worker_id in ("w1", "w2"):
            await lent(desk, worker_id)
            interrupt = await run.question()
            asked.append(interrupt.id)
            await kernel.resolve_interrupt(interrupt.id, {"decision": "retry"})
        lease = await lent(desk, "w3")
        assert await desk.complete(lease.work_id, "w3", AgentResult(output={"n": 3}))
        assert (await run.end())[0] == "completed"
        assert len(set(asked)) == 2


@in_virtual_time
async def test_a_late_result_answers_the_question(path: str) -> None:
    """A worker that was silent too long and delivers all the same settles what a person was asked."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        lease = await lent(desk)
        interrupt = await run.question()
        assert desk.renew(lease.work_id, "w1") == (False, False)
        assert await desk.complete(lease.work_id, "w1", AgentResult(output={"late": 1}, metrics={"tokens_in": 7}))
        assert await run.end() == ("completed", {"write": {"late": 1}})
        assert kernel.interrupts.get_interrupt(interrupt.id).status == "resolved"
        assert kernel.get_envelope("run").tokens_in == 7


@in_virtual_time
async def test_a_retried_stage_is_given_to_another_worker_without_a_question(path: str) -> None:
    """A stage that may be run again after a failure may be run again after the loss of its worker."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel, config={"name": "p", "agents": [{"name": "write", "max_retries": 1}]})
        await lent(desk)
        lease = await lent(desk, "w2")
        assert await desk.complete(lease.work_id, "w2", AgentResult(output={"n": 1}))
        assert (await run.end())[0] == "completed"


@in_virtual_time
async def test_a_cancelled_run_is_told_at_renewal(path: str) -> None:
    """A pipeline that is ended cancels the work; the worker learns it when it renews its lease."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        lease = await lent(desk)
        assert desk.renew(lease.work_id, "w1") == (True, False)
        await kernel.terminate("run", force=True)
        await asyncio.sleep(0.1)
        assert desk.renew(lease.work_id, "w1") == (True, True)
        assert not await desk.complete(lease.work_id, "w1", AgentResult(output={"n": 1}))
        assert (await run.end())[1] == {}


@in_virtual_time
async def test_a_stage_time_limit_cancels_the_work(path: str) -> None:
    """A stage that takes longer than it may fails, and its worker is told."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel, config={"name": "p", "agents": [{"name": "write", "timeout_seconds": 3}]})
        lease = await lent(desk)
        assert (await run.end())[0] == "tool_failed_fatally"
        assert desk.renew(lease.work_id, "w1") == (True, True)


@in_virtual_time
async def test_after_a_restart_the_worker_delivers_what_it_had(path: str) -> None:
    """A server that is killed while a worker runs takes the result after its restart; no person is asked."""
    kernel = Kernel(path)
    await kernel.start()
    desk = WorkDesk(kernel)
    await desk.claim(claim_of(announce=True))
    Run(kernel)
    lease = await lent(desk)
    crash(kernel)
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        early = asyncio.ensure_future(desk.complete(lease.work_id, "w1", AgentResult(output={"kept": True})))
        assert desk.renew(lease.work_id, "w1") == (True, False)
        await desk.claim(claim_of(announce=True))
        assert await early
        run = Run(kernel)
        assert await run.end() == ("completed", {"write": {"kept": True}})
        assert kernel.interrupts.list_interrupts() == []


@in_virtual_time
async def test_a_result_that_was_taken_survives_a_crash(path: str) -> None:
    """A worker whose result was acknowledged need not come back: the result is in the journal."""
    kernel = Kernel(path)
    await kernel.start()
    desk = WorkDesk(kernel)
    await desk.claim(claim_of(announce=True))
    Run(kernel)
    lease = await lent(desk)
    assert await desk.complete(lease.work_id, "w1", AgentResult(output={"kept": True}))
    crash(kernel)
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of("w2", announce=True))
        assert await Run(kernel).end() == ("completed", {"write": {"kept": True}})
        assert kernel.interrupts.list_interrupts() == []


@in_virtual_time
async def test_after_a_restart_a_worker_that_is_gone_leaves_a_question(path: str) -> None:
    """Work that was lent before a kill of the server, and whose worker is dead too, is in doubt: never run again
    without an answer. A second restart keeps the question."""
    kernel = Kernel(path)
    await kernel.start()
    desk = WorkDesk(kernel)
    await desk.claim(claim_of(announce=True))
    Run(kernel)
    await lent(desk)
    crash(kernel)
    asked = []
    for _ in range(2):
        kernel = Kernel(path)
        await kernel.start()
        desk = WorkDesk(kernel)
        await desk.claim(claim_of("w2", announce=True))
        asked.append((await Run(kernel).question()).id)
        assert await desk.claim(claim_of("w2", wait_s=5.0)) is None
        crash(kernel)
    assert asked[0] == asked[1]
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of("w2", announce=True))
        run = Run(kernel)
        await kernel.resolve_interrupt(asked[0], {"decision": "retry"})
        lease = await lent(desk, "w2")
        assert await desk.complete(lease.work_id, "w2", AgentResult(output={"n": 2}))
        assert await run.end() == ("completed", {"write": {"n": 2}})


@in_virtual_time
async def test_after_a_restart_a_late_result_answers_an_old_question(path: str) -> None:
    """A worker that comes back after the person was asked, and after another restart, still settles the question."""
    kernel = Kernel(path)
    await kernel.start()
    desk = WorkDesk(kernel)
    await desk.claim(claim_of(announce=True))
    run = Run(kernel)
    lease = await lent(desk)
    await run.question()
    crash(kernel)
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        run = Run(kernel)
        await run.question()
        assert await desk.complete(lease.work_id, "w1", AgentResult(output={"late": True}))
        assert await run.end() == ("completed", {"write": {"late": True}})


@pytest.mark.parametrize("idempotent", [frozenset(), frozenset({"write"})])
def test_work_that_no_worker_had_is_not_in_doubt_after_a_restart(path: str, idempotent: frozenset[str]) -> None:
    """A piece that only waited when the server was killed, or that may be repeated, simply runs after the restart."""

    async def main() -> None:
        kernel = Kernel(path)
        await kernel.start()
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        Run(kernel)
        await asyncio.sleep(1.0)
        if idempotent:
            await lent(desk, idempotent=idempotent)
        crash(kernel)
        async with Kernel(path) as kernel:
            desk = WorkDesk(kernel)
            lease = await lent(desk, "w2")
            assert await desk.complete(lease.work_id, "w2", AgentResult(output={"n": 1}))
            assert await Run(kernel).end() == ("completed", {"write": {"n": 1}})
            assert kernel.interrupts.list_interrupts() == []

    run_in_virtual_time(main())


@in_virtual_time
async def test_unknown_work_is_told_apart_once_workers_had_time_to_return(path: str) -> None:
    """Right after a start an unknown lease may still come back; later the worker is told that it has none."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        assert desk.renew("unknown.1", "w1") == (True, False)
        assert not await desk.complete("unknown.1", "w1", AgentResult())
        assert desk.renew("unknown.1", "w1") == (False, False)


@in_virtual_time
async def test_a_remote_service_answers_requests(path: str) -> None:
    """Dispatch reaches a service that a worker serves; a lost worker is OutcomeUnknown for a caller outside."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(names=MAIL, announce=True))
        answer = asyncio.ensure_future(kernel.dispatch("mail", {"metadata": {"to": "ada"}}))
        lease = await lent(desk, names=MAIL)
        assert lease.piece.payload.request.metadata == {"to": "ada"}
        assert await desk.complete(lease.work_id, "w1", {"metadata": {"sent": True}})
        assert (await answer).metadata == {"sent": True}
        answer = asyncio.ensure_future(kernel.dispatch("mail", {}))
        await lent(desk, names=MAIL)
        with pytest.raises(OutcomeUnknown):
            await answer
        answer = asyncio.ensure_future(kernel.dispatch("mail", {}))
        lease = await lent(desk, names=MAIL)
        answer.cancel()
        await asyncio.sleep(0.1)
        assert desk.renew(lease.work_id, "w1") == (True, True)


@in_virtual_time
async def test_a_process_that_asked_a_lost_service_is_asked_about(path: str) -> None:
    """A request to a service from a program is an effect of it: with a lost worker it is in doubt."""

    async def program(ctx: Any) -> str:
        try:
            response = await ctx.do(kernel.dispatch, "mail", {"metadata": {}})
        except EffectInDoubt as error:
            return error.code
        return str(response)

    async with Kernel(path, programs=[program]) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(names=MAIL, announce=True))
        handle = kernel.spawn(program)
        await lent(desk, names=MAIL)
        while (interrupt := kernel.get_pending_interrupt(handle.pid)) is None:
            await asyncio.sleep(0.1)
        await kernel.resolve_interrupt(interrupt.id, {"decision": "fail"})
        assert (await handle.wait()).result == "effect_in_doubt"


@in_virtual_time
async def test_work_of_other_users_is_out_of_reach(path: str) -> None:
    """A worker that acts for a user gets work of that user alone, and cannot renew or complete another's."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of("op", announce=True))
        run = Run(kernel, user_id="ada")
        assert await desk.claim(claim_of("bobs", user_id="bob", wait_s=1.0)) is None
        lease = await lent(desk, "op")
        for worker_id in ("bobs", "op"):
            for work_id in (lease.work_id, "unknown.1"):  # as work that does not exist, also right after a start
                assert desk.renew(work_id, worker_id, user_id="bob").held == desk._awaits_return
                assert not await desk.complete(work_id, worker_id, AgentResult(), user_id="bob")
                desk.renew(lease.work_id, "op")
        assert await desk.complete(lease.work_id, "op", AgentResult(output={"n": 1}))
        assert (await run.end())[0] == "completed"


@in_virtual_time
async def test_a_full_queue_refuses_work(path: str) -> None:
    """Where too much work waits for a name, the stage fails at once instead of growing the queue."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel, WorkQueue(waiting_per_name_max=1))
        await desk.claim(claim_of(names=MAIL, announce=True))
        waiting = asyncio.ensure_future(kernel.dispatch("mail", {}))
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded):
            await kernel.dispatch("mail", {})
        waiting.cancel()


@in_virtual_time
async def test_a_claim_that_breaks_off_gives_its_work_back(path: str) -> None:
    """A worker whose connection breaks before it was told of its work leaves that work for another."""
    async with Kernel(path) as kernel:
        desk = WorkDesk(kernel)
        await desk.claim(claim_of(announce=True))
        broken = asyncio.ensure_future(desk.claim(claim_of("w1")))
        await asyncio.sleep(1.0)
        run = Run(kernel)
        while kernel.orchestrator.state.sessions.get("run") is None or not desk._queue._lent:
            await asyncio.sleep(0)
        broken.cancel()
        with pytest.raises(asyncio.CancelledError):
            await broken
        lease = await lent(desk, "w2")
        assert lease.piece.attempt == 1
        assert await desk.complete(lease.work_id, "w2", AgentResult(output={"n": 1}))
        assert (await run.end())[0] == "completed"
