"""Workers and servers that are killed while they work: real processes, sockets and stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra.errors import LyraError, NoSuchProcess
from tests.server.work.programs import ALICE, OPERATOR, Program, World
from verify.servers import PostgresServer, postgres_missing

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


def pipeline(*names: str) -> dict[str, Any]:
    stages = [{"name": name, "stage_order": number} for number, name in enumerate(names)]
    for stage, after in zip(stages, names[1:], strict=False):
        stage["default_next"] = after
    return {"name": "p", "agents": stages}


class Client:
    """Calls of one connection, from a test that is not async; pipelines run in the background."""

    def __init__(self, world: World, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._world = world
        self._kernel = lyra.connect(world.address, token=OPERATOR, **options)
        self._runs: dict[str, asyncio.Task[Any]] = {}

    def __enter__(self) -> Client:
        self._world.pauses.append(self.pause)
        return self

    def pause(self, seconds: float) -> None:
        self._wait(asyncio.sleep(seconds))

    def __exit__(self, *_exc: object) -> None:
        self._world.pauses.remove(self.pause)
        self._wait(self._close())
        self._loop.close()

    async def _close(self) -> None:
        for run in self._runs.values():
            run.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        await self._kernel.close()

    def _wait(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, 60.0))

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return self._wait(getattr(self._kernel, name)(*args, **options))

    def start(self, pid: str, config: dict[str, Any]) -> None:
        """Begin to read a run of a pipeline."""

        async def read() -> Any:
            last = None
            async for event in self._kernel.execute_pipeline(config, {"raw_input": "text"}, pid=pid):
                last = event
            return last

        self._runs[pid] = self._loop.create_task(read())

    def end(self, pid: str) -> tuple[str, Any]:
        """Why a run ended, and its outputs."""
        envelope = self._wait(self._runs.pop(pid)).envelope
        return str(envelope.terminal_reason), envelope.outputs

    def read_again(self, pid: str, config: dict[str, Any]) -> None:
        """Go on reading a run after the server was restarted."""
        with pytest.raises(LyraError):
            self._wait(self._runs.pop(pid))
        self.start(pid, config)

    def question(self, pid: str) -> Any:
        async def ask() -> Any:
            while True:
                with suppress(NoSuchProcess):  # the run has not begun
                    asked = await self._kernel.list_interrupts(pid=pid, status="pending")
                    if asked:
                        return asked[0]
                await asyncio.sleep(0.05)

        return self._wait(ask())


def test_idempotent_work_of_a_killed_worker_is_done_once_by_another(world: World) -> None:
    """kill -9 of a worker in the middle of a stage: a second worker runs it, and what it used is counted once."""
    world.server()
    first = world.worker("a")
    with Client(world) as client:
        client.start("run", pipeline("repeatable"))
        world.wait_for_line("begin repeatable a")
        first.kill()
        world.worker("b")
        world.wait_for_line("begin repeatable b")
        world.go()
        assert client.end("run") == ("completed", {"repeatable": {"by": "b", "attempt": 2}})
        process = client.call("get_process", "run")
        assert (process.usage.llm_calls, process.usage.tokens_in) == (1, 11)
        assert client.call("list_interrupts") == []
    assert world.lines() == ["begin repeatable a", "begin repeatable b", "end repeatable b"]


def test_other_work_of_a_killed_worker_is_in_doubt(world: World) -> None:
    """kill -9 of a worker whose agents are not idempotent: each stage is a question, and its answer decides."""
    world.server()
    first = world.worker("a", "--concurrency", "3")
    names = ("once", "second", "third")
    with Client(world) as client:
        for name in names:
            client.start(name, pipeline(name))
            world.wait_for_line(f"begin {name} a")
        first.kill()
        world.worker("b", "--concurrency", "3")
        world.go()
        asked = [client.question(name) for name in names]
        assert {interrupt.kind for interrupt in asked} == {"in_doubt"}
        assert [line for line in world.lines() if line.endswith("b")] == []
        for interrupt, decision in zip(asked, ("retry", "skip", "fail"), strict=True):
            answer = {"decision": decision, "data": {"by": "hand"}} if decision == "skip" else {"decision": decision}
            client.call("resolve_interrupt", interrupt.id, answer)
        assert client.end("once") == ("completed", {"once": {"by": "b", "attempt": 2}})
        assert client.end("second") == ("completed", {"second": {"by": "hand"}})
        assert client.end("third") == ("tool_failed_fatally", {})
    assert [line for line in world.lines() if line.endswith("b")] == ["begin once b", "end once b"]


def _kill_the_server(world: World) -> None:
    server = world.server()
    world.worker("a", "--concurrency", "2")
    with Client(world) as client:
        config = pipeline("once", "repeatable")
        client.start("run", config)
        world.wait_for_line("begin once a")
        server.kill()
        world.server()
        client.read_again("run", config)
        world.go()
        reason, outputs = client.end("run")
        assert reason == "completed"
        assert outputs["once"] == {"by": "a", "attempt": 1}
        assert outputs["repeatable"]["by"] == "a"
        assert client.call("list_interrupts") == []
    assert world.lines() == ["begin once a", "end once a", "begin repeatable a", "end repeatable a"]


def test_a_killed_server_takes_the_result_after_its_restart(world: World) -> None:
    """kill -9 of the server in the middle of a stage: the worker goes on, and the new server takes what it did."""
    _kill_the_server(world)


def test_a_killed_server_waits_for_the_worker_that_has_idempotent_work(world: World) -> None:
    """kill -9 of the server in the middle of a stage that may be repeated, and another worker that is back sooner: the
    one that has the work goes on and delivers, and nothing is run again."""
    server = world.server()
    world.worker("a", "--lease", "9")  # which it renews every three seconds
    with Client(world) as client:
        client.start("run", pipeline("repeatable"))
        world.wait_for_line("begin repeatable a")
        server.kill()
        world.server()
        world.worker("b")
        client.read_again("run", pipeline("repeatable"))
        client.pause(0.5)
        world.go()
        assert client.end("run") == ("completed", {"repeatable": {"by": "a", "attempt": 1}})
        assert client.call("list_interrupts") == []
    assert world.lines() == ["begin repeatable a", "end repeatable a"]


@pytest.mark.long
def test_a_killed_server_on_postgresql_takes_the_result_too(tmp_path: Path) -> None:
    """The same with PostgreSQL as the store."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as database, World(tmp_path, db=database.url) as world:
        _kill_the_server(world)


def test_a_server_that_is_told_to_stop_finishes_its_runs_with_its_workers(world: World) -> None:
    """SIGTERM of the server: runs in flight go on to their end, also to stages that no worker had yet; exit code 0."""
    server = world.server()
    world.worker("a")
    with Client(world) as client:
        client.start("run", pipeline("once", "second"))
        world.wait_for_line("begin once a")
        server.process.terminate()
        world.wait_for(lambda: "finished first" in server.errors.read_text())
        world.go()
        assert client.end("run") == (
            "completed",
            {"once": {"by": "a", "attempt": 1}, "second": {"by": "a", "attempt": 1}},
        )
    assert server.process.wait(60.0) == 0


def test_a_worker_that_is_told_to_stop_finishes_what_it_holds(world: World) -> None:
    """SIGTERM: no new work, the current piece is delivered, exit code 0. An idle worker ends at once."""
    world.server()
    worker = world.worker("a")
    with Client(world) as client:
        client.start("run", pipeline("once", "second"))
        world.wait_for_line("begin once a")
        worker.process.terminate()
        world.wait_for(lambda: "finished first" in worker.errors.read_text())
        world.go()
        assert worker.process.wait(60.0) == 0
        idle = world.worker("b")
        assert client.end("run")[1]["second"]["by"] == "b"
        assert idle.stop() == 0
    assert world.lines() == ["begin once a", "end once a", "begin second b", "end second b"]


def test_a_cancelled_run_ends_its_agent(world: World) -> None:
    """Ending a process cancels the agent that runs for it in another program, and the worker goes on."""
    world.server()
    world.worker("a")
    with Client(world) as client:
        client.start("run", pipeline("once"))
        world.wait_for_line("begin once a")
        client.call("terminate", "run", reason="enough", force=True)
        world.wait_for_line("cancelled once a")
        assert client.call("dispatch", "echo", {"metadata": {"n": 1}}).metadata == {"echo": {"n": 1}, "by": "a"}


@pytest.mark.parametrize(
    ("words", "env", "code", "text"),
    [
        ((), {"LYRA_TOKEN": "wrong-token-0123456789"}, 3, "the token is missing or not known"),
        (("--user", "bob"), {"LYRA_TOKEN": ALICE}, 3, "bound to another user"),
        (("--concurrency", "0"), {}, 2, "concurrency"),
        (("--load", "empty.py"), {}, 2, "the worker serves nothing"),
        (("--load", "other.py"), {}, 2, "has no function setup(worker)"),
        (("--server", "nowhere"), {}, 2, "is no address"),
        (("--server", "192.0.2.1:1"), {}, 2, "plain text"),
    ],
)
def test_a_worker_that_cannot_work_says_why(world: World, words: Any, env: Any, code: int, text: str) -> None:
    """A wrong token, another user's, a file without agents, a wrong address: one sentence and an exit code."""
    (world.folder / "empty.py").write_text("def setup(worker): pass\n")
    (world.folder / "other.py").write_text("x = 1\n")
    if code == 3:
        world.server()
    else:
        world.address = "127.0.0.1:1"  # it fails before it connects
    worker = world.start_worker("a", *words, **env)
    assert worker.process.wait(60.0) == code
    assert text in worker.errors.read_text()
    assert "Traceback" not in worker.errors.read_text()


def test_without_json_the_ready_line_is_for_a_person(world: World) -> None:
    """The line names the worker, what it serves and the server; the server's address may come from the settings."""
    world.server()
    (world.folder / "one.py").write_text(
        "async def agent(envelope): ...\ndef setup(worker): worker.register_agent('one', agent)\n"
    )
    words = ["worker", "--set", f"server.grpc={world.address}", "--load", "one.py", "--name", "w"]
    program = Program(world.folder, words)
    try:
        assert program.process.stdout is not None
        assert program.process.stdout.readline().decode() == f"worker w serves one for {world.address}\n"
        assert program.stop() == 0
    finally:
        program.close()


def test_a_worker_of_one_user_does_no_work_of_others(world: World) -> None:
    """A worker with a token that is bound to a user gets that user's work alone."""
    world.server()
    world.worker("hers", LYRA_TOKEN=ALICE)
    world.go()
    with Client(world) as operator, Client(world, user_id="alice") as alice:
        operator.start("his", pipeline("once"))
        alice.start("hers", pipeline("once"))
        assert alice.end("hers")[1]["once"]["by"] == "hers"
        world.worker("op")
        assert operator.end("his")[1]["once"]["by"] == "op"
