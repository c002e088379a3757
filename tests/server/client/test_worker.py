"""Workers over a real connection: what they report, and what they do when the connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import lyra
from lyra.core.address import Address
from lyra.core.effect import Charged
from lyra.core.envelope import Envelope
from lyra.errors import ConfigError, ModelError, NameTaken, NoSuchProcess, Unauthenticated
from lyra.kernel import AgentResult
from lyra.kernel.kernel import Kernel
from lyra.kernel.services.service import ServiceRequest, ServiceResponse
from lyra.server.client import Worker, current_work
from lyra.server.client.remote import RemoteKernel
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings
from tests.server.client.test_remote import ALICE, OPERATOR, TOKENS, on_loop


@asynccontextmanager
async def served() -> AsyncIterator[Server]:
    settings = ServeSettings(tokens=TOKENS, grpc=Address("127.0.0.1", 0), drain_s=2.0)
    async with Server(Kernel(), settings) as server:
        yield server


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """A worker that the server knows, until the block ends."""
    ready = asyncio.Event()
    run = asyncio.ensure_future(worker.run(ready.set))
    known = asyncio.ensure_future(ready.wait())
    await asyncio.wait([run, known], return_when=asyncio.FIRST_COMPLETED)
    known.cancel()
    if run.done():
        await run
    try:
        yield
    finally:
        worker.stop()
        await run


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[tuple[Server, Worker, RemoteKernel]]:
    async with served() as server:
        address = str(server.grpc)
        async with lyra.connect(address, token=OPERATOR, user_id="ada") as remote:
            yield server, Worker(address, token=OPERATOR, **options), remote


class CutProxy:
    """A TCP proxy in front of a server, whose connections can be cut and refused."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self._is_cut = False
        self.address = ""

    async def __aenter__(self) -> CutProxy:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.cut()
        self._server.close()

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self._is_cut = False

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        back, forth = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, forth]

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            except OSError:
                pass
            finally:
                target.close()

        await asyncio.gather(copy(reader, forth), copy(back, writer))


async def ended(remote: RemoteKernel, config: dict[str, Any], pid: str = "run") -> Any:
    last = None
    async for event in remote.execute_pipeline(config, "text", pid=pid):
        last = event
    assert last is not None
    return last.envelope


async def question(remote: RemoteKernel, pid: str) -> Any:
    """The open question of a run, as soon as there is one."""
    while True:
        with suppress(NoSuchProcess):  # the run has not begun
            asked = await remote.list_interrupts(pid, status="pending")
            if asked:
                return asked[0]
        await asyncio.sleep(0.02)


def stages(*names: str) -> dict[str, Any]:
    return {"name": "p", "agents": [{"name": name, "stage_order": number} for number, name in enumerate(names)]}


@on_loop
async def test_functions_of_every_form_run_in_a_worker() -> None:
    """Async and sync functions, with and without the stage's settings; metrics, usage and the attempt reach both."""
    async with world(concurrency=2) as (server, worker, remote):

        async def plain(envelope: Envelope) -> dict[str, Any]:
            work = current_work()
            assert work is not None
            return {"text": envelope.raw_input, "attempt": work.attempt, "key": bool(work.idempotency_key)}

        def sync(envelope: Envelope, stage: Any) -> AgentResult:
            return AgentResult(output={"role": stage.model_role}, metrics={"llm_calls": 2, "tokens_out": 3})

        async def charged(envelope: Envelope) -> Any:
            return Charged({"n": 1}, {"llm_calls": 1, "input_tokens": 9})

        for name, agent in {"plain": plain, "sync": sync, "charged": charged}.items():
            worker.register_agent(name, agent)
        config = stages("plain", "sync", "charged")
        config["agents"][1] |= {"has_llm": True, "model_role": "writer"}
        for stage, after in zip(config["agents"], ("sync", "charged"), strict=False):
            stage["default_next"] = after
        async with working(worker):
            assert server.kernel.orchestrator.agents.names() == ["charged", "plain", "sync"]
            envelope = await ended(remote, config)
        assert envelope.outputs == {
            "plain": {"text": "text", "attempt": 1, "key": True},
            "sync": {"role": "writer"},
            "charged": {"n": 1},
        }
        assert (envelope.llm_call_count, envelope.tokens_in, envelope.tokens_out) == (3, 9, 3)
        assert worker.done == 3
        assert server.kernel.orchestrator.agents.names() == []


@on_loop
async def test_an_agent_runs_as_a_process_of_the_worker() -> None:
    """An Agent answers in the worker, with its own model; what it used is counted on the server."""
    async with world() as (_server, worker, remote):
        worker.register_agent("poet", lyra.Agent(name="poet", model="sim/echo"))
        async with working(worker):
            run = await remote.execute_agent("poet", "a rose")
        assert run.success, run.error
        assert run.llm_calls == 1
        assert run.envelope.tokens_in > 0


@on_loop
async def test_errors_of_agents_fail_their_stage() -> None:
    """An exception is the stage's error; an error of Lyra's keeps its class, so that the reason is known."""
    async with world() as (_server, worker, remote):

        async def broken(envelope: Envelope) -> None:
            raise KeyError("oops")

        async def unanswered(envelope: Envelope) -> None:
            raise ModelError("no model answers", kind="overloaded")

        worker.register_agent("broken", broken)
        worker.register_agent("unanswered", unanswered)
        async with working(worker):
            run = await remote.execute_agent("broken", "x")
            assert (run.success, run.error) == (False, "'oops'")
            envelope = await ended(remote, stages("unanswered"))
        assert envelope.terminal_reason == "llm_failed_fatally"


@on_loop
async def test_an_agent_may_ask_and_break_its_loop() -> None:
    """The whole result of an agent reaches the pipeline: its question, and the end of its loop."""
    async with world() as (_server, worker, remote):

        async def asks(envelope: Envelope) -> AgentResult:
            return AgentResult(output={"n": 1}, interrupt={"kind": "clarification", "question": "which?"})

        async def ends(envelope: Envelope) -> AgentResult:
            return AgentResult(output={"n": 2}, break_loop=True)

        worker.register_agent("asks", asks)
        worker.register_agent("ends", ends)
        async with working(worker):
            run = asyncio.ensure_future(ended(remote, stages("asks")))
            asked = await question(remote, "run")
            assert asked.question == "which?"
            await remote.resolve_interrupt(asked.id, {"text": "this"})
            assert (await run).terminal_reason == "completed"
            assert (await ended(remote, stages("ends"), "other")).terminal_reason == "break_requested"


@on_loop
async def test_services_run_in_a_worker() -> None:
    """A handler gets the request; a response, a mapping, an envelope and an error come back."""
    async with world() as (_server, worker, remote):

        def handler(request: ServiceRequest) -> Any:
            if request.metadata.get("fail"):
                raise ValueError("cannot")
            if request.metadata.get("report"):
                return ServiceResponse(error="reported")
            if request.envelope is not None:
                request.envelope.metadata = {"seen": "yes"}
                return request.envelope
            return {"echo": request.metadata}

        worker.register_service("echo", handler, idempotent=True)
        async with working(worker):
            assert (await remote.dispatch("echo", {"metadata": {"n": 1}})).metadata == {"echo": {"n": 1}}
            assert (await remote.dispatch("echo", {"metadata": {"fail": 1}})).error == "cannot"
            assert (await remote.dispatch("echo", {"metadata": {"report": 1}})).error == "reported"
            envelope = await remote.create_envelope(raw_input="x")
            response = await remote.dispatch("echo", {"envelope": envelope})
            assert response.envelope.metadata == {"seen": "yes"}


@pytest.mark.slow
@on_loop
async def test_a_cut_connection_leaves_a_question_that_the_late_result_answers() -> None:
    """A network that is cut for longer than a lease: a person is asked, and the result that comes late settles it."""
    async with served() as server, CutProxy(server.grpc or Address("", 0)) as proxy:
        worker = Worker(proxy.address, token=OPERATOR, lease_s=1.0)
        began, may_end = asyncio.Event(), asyncio.Event()

        async def once(envelope: Envelope) -> dict[str, Any]:
            began.set()
            await may_end.wait()
            return {"late": True}

        worker.register_agent("once", once)
        async with lyra.connect(str(server.grpc), token=OPERATOR) as remote, working(worker):
            run = asyncio.ensure_future(ended(remote, stages("once")))
            await began.wait()
            proxy.cut()
            assert (await question(remote, "run")).kind == "in_doubt"
            may_end.set()
            proxy.mend()
            assert (await run).outputs == {"once": {"late": True}}
            assert await remote.list_interrupts("run", status="pending") == []


@pytest.mark.slow
@on_loop
async def test_a_worker_that_lost_repeatable_work_gives_it_up() -> None:
    """While a worker is cut off another repeats its work; back again, the first one ends what it no longer holds."""
    async with served() as server, CutProxy(server.grpc or Address("", 0)) as proxy:
        first = Worker(proxy.address, token=OPERATOR, lease_s=1.0)
        second = Worker(str(server.grpc), token=OPERATOR)
        began, repeated, given_up, may_end = (asyncio.Event() for _ in range(4))

        async def slow(envelope: Envelope) -> dict[str, Any]:
            began.set()
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                given_up.set()
                raise
            return {}

        async def other(envelope: Envelope) -> dict[str, Any]:
            repeated.set()
            await may_end.wait()
            return {"by": "second"}

        first.register_agent("work", slow, idempotent=True)
        second.register_agent("work", other, idempotent=True)
        async with lyra.connect(str(server.grpc), token=OPERATOR) as remote, working(first):
            run = asyncio.ensure_future(ended(remote, stages("work")))
            await began.wait()
            proxy.cut()
            async with working(second):
                await repeated.wait()
                proxy.mend()
                await given_up.wait()
                may_end.set()
                assert (await run).outputs == {"work": {"by": "second"}}


@on_loop
async def test_a_worker_is_refused_in_words() -> None:
    """An unknown token, a name of the server's own and a worker without agents end `run` with their error."""

    async def agent(envelope: Envelope) -> None: ...

    async with served() as server:
        server.kernel.register_agent("own", agent)
        address = str(server.grpc)
        stranger = Worker(address, token="unknown-token-0123456789")
        stranger.register_agent("mine", agent)
        with pytest.raises(Unauthenticated):
            await stranger.run()
        taker = Worker(address, token=ALICE)
        taker.register_agent("own", agent)
        with pytest.raises(NameTaken):
            await taker.run()
        with pytest.raises(ConfigError, match="serves nothing"):
            await Worker(address, token=OPERATOR).run()
    with pytest.raises(ConfigError, match="lease_s"):
        Worker(address, token=OPERATOR, lease_s=0.1)
    worker = Worker(address, token=OPERATOR)
    with pytest.raises(ConfigError):
        worker.register_service("s", 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        worker.register_agent("a", agent, idempotent=1)  # type: ignore[arg-type]
