"""`lyra serve` as a process of its own: workers in other processes, SIGTERM, a kill and a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from lyra.server.generated import engine_pb2 as pb
from tests import warm
from tests.server.grpc.client import ALICE, TOKENS, Client, on_loop, rest
from verify.servers import PostgresServer, postgres_missing

pytestmark = pytest.mark.slow

SETUP = """
import asyncio
from pathlib import Path

def setup(kernel):
    async def brew(envelope):
        Path(envelope.raw_input + ".begun").touch()
        while not Path(envelope.raw_input + ".go").exists():
            await asyncio.sleep(0.02)
        return {"cups": 2}

    kernel.register_agent("brew", brew, idempotent=True)
"""

WORKER = """
import json, sys
import grpc
from lyra.server.generated import engine_pb2 as pb

address, token = sys.argv[1:]
metadata = [("authorization", "Bearer " + token)]

def call(method, request, answer):
    make = grpc.insecure_channel(address).unary_unary
    return make("/lyra.engine.v1.OrchestrationService/" + method,
                type(request).SerializeToString, answer.FromString)(request, metadata=metadata, timeout=60)

config = {"name": "review", "agents": [
    {"name": "draft", "default_next": "check"},
    {"name": "check", "routing_rules": [{"condition": "good", "value": False, "target": "draft"}],
     "default_next": "end"}]}
call("InitializeSession", pb.InitializeSessionRequest(process_id="w1", pipeline_config=json.dumps(config).encode()),
     pb.SessionState)
instruction = call("GetNextInstruction", pb.GetNextInstructionRequest(process_id="w1"), pb.Instruction)
runs = []
while instruction.kind == pb.RUN_AGENT:
    runs.append(instruction.agent_name)
    output = {"text": "x"} if instruction.agent_name == "draft" else {"good": len(runs) > 2}
    report = pb.ReportAgentResultRequest(process_id="w1", agent_name=instruction.agent_name, run_id=instruction.run_id,
                                         output=json.dumps(output).encode(), success=True)
    instruction = call("ReportAgentResult", report, pb.Instruction)
print(json.dumps([runs, pb.TerminalReason.Name(instruction.terminal_reason)]))
"""


class ServeProcess:
    """A `lyra serve` that is ready."""

    def __init__(self, folder: Path, *, db: str, options: Sequence[str] = (), stderr: Any = None) -> None:
        (folder / "tokens").write_text(
            "".join(f"{token} {user}\n" for token, user in TOKENS.items() if isinstance(user, str))
        )
        (folder / "tokens").chmod(0o600)
        (folder / "setup.py").write_text(SETUP)
        words = ["serve", "--grpc", "127.0.0.1:0", "--http", "none", "--db", db]
        words += ["--token-file", str(folder / "tokens"), "--load", str(folder / "setup.py"), *options]
        self.process = warm.start_lyra(words, cwd=folder, env=os.environ, stderr=stderr)
        assert self.process.stdout is not None
        self.address = json.loads(self.process.stdout.readline())["grpc"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit code, once the process has ended."""
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    server = ServeProcess(tmp_path, db=str(tmp_path / "server.db"))
    yield server
    if server.process.poll() is None:
        server.process.kill()
    server.ended()


def test_a_worker_in_another_process_drives_a_pipeline(served: ServeProcess):
    """The control flow of an outside worker: initialize, run what the kernel says, report, until it says stop."""
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, served.address, ALICE], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(worker.stdout) == [["draft", "check", "draft", "check"], "COMPLETED"]
    assert served.stop() == 0


def test_with_json_logs_every_line_on_stderr_is_json(tmp_path: Path):
    """What the server tells the person who starts it is a record of the log, too, and the log has no token."""
    with (tmp_path / "log").open("w") as log:
        server = ServeProcess(
            tmp_path,
            db=str(tmp_path / "server.db"),
            options=["--log-format", "json", "--log-level", "info"],
            stderr=log,
        )
        assert server.stop() == 0
    text = (tmp_path / "log").read_text()
    messages = [json.loads(line)["message"] for line in text.splitlines()]
    assert any("stopping" in message for message in messages)
    assert not any(token in text for token in TOKENS)


def test_sigterm_lets_a_running_pipeline_finish_and_exits_0(served: ServeProcess, tmp_path: Path):
    """The reader of the run gets its last event; a second server on the store has the result."""
    marker = tmp_path / "stage"

    @on_loop
    async def body():
        async with grpc.aio.insecure_channel(served.address) as channel:
            client = Client(channel, ALICE)
            call = client(
                "EngineService/ExecutePipeline",
                thread_id="t1",
                envelope={"raw_input": str(marker)},
                pipeline_config=json.dumps({"name": "tea", "agents": [{"name": "brew"}]}).encode(),
            )
            await call.read()
            await _exists(marker.with_suffix(".begun"))
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert served.process.poll() is None
            marker.with_suffix(".go").touch()
            assert (await rest(call))[-1].type == pb.PIPELINE_COMPLETED

    body()
    assert served.ended() == 0
    again = ServeProcess(tmp_path, db=str(tmp_path / "server.db"))
    try:
        state = asyncio.run(_call(again.address, "OrchestrationService/GetSessionState", process_id="t1"))
        assert json.loads(state.envelope)["outputs"]["brew"] == {"cups": 2}
    finally:
        assert again.stop() == 0


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that outlives its server."""
    if request.param == "sqlite":
        yield str(tmp_path / "server.db")
        return
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        yield server.url


def test_nothing_that_was_answered_is_lost_when_the_server_is_killed(db: str, tmp_path: Path):
    """Under load, with calls in flight: after SIGKILL and a restart every change that was acknowledged is there."""
    served = ServeProcess(tmp_path, db=db)
    created: list[str] = []
    used: dict[str, int] = {}

    async def one(client: Client, number: int) -> None:
        pid = f"p{number}"
        if await client.status("KernelService/CreateProcess", pid=pid) == "OK":
            created.append(pid)
            if await client.status("KernelService/RecordUsage", pid=pid, llm_calls=number % 7) == "OK":
                used[pid] = number % 7
        if len(used) == 200:
            served.process.kill()

    async def create_until_killed() -> None:
        async with grpc.aio.insecure_channel(served.address) as channel:
            client = Client(channel, ALICE)
            for first in range(0, 10_000, 40):
                await asyncio.gather(*(one(client, number) for number in range(first, first + 40)))
                if served.process.poll() is not None:
                    return

    asyncio.run(create_until_killed())
    assert served.ended() == -signal.SIGKILL
    again = ServeProcess(tmp_path, db=db)
    try:
        listed = asyncio.run(_call(again.address, "KernelService/ListProcesses"))
        kept = {block.pid: block.usage.llm_calls for block in listed.processes}
        assert set(created) <= set(kept)
        assert {pid: kept[pid] for pid in used} == used
        assert len(used) >= 200
    finally:
        assert again.stop() == 0


async def _exists(path: Path) -> None:
    async with asyncio.timeout(60.0):
        while not await asyncio.to_thread(path.exists):
            await asyncio.sleep(0.02)


async def _call(address: str, method: str, **fields: Any) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        return await Client(channel, ALICE)(method, **fields)
