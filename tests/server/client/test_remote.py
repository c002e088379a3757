"""`lyra.connect`: the kernel's methods over gRPC, with its values and errors."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra.core import kernel_calls
from lyra.core.address import Address
from lyra.core.envelope import Envelope
from lyra.core.kernel_calls import KernelCall
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    Denied,
    InvalidTransition,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchInterrupt,
    NoSuchProcess,
    NoSuchService,
    Overloaded,
    Unauthenticated,
)
from lyra.kernel.interrupts.interrupt import Interrupt
from lyra.kernel.kernel import Kernel
from lyra.kernel.services.service import ServiceInfo, ServiceRequest, ServiceResponse
from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import QuotaResult, ResourceUsage
from lyra.kernel.workers.rate_limits import RateLimitResult
from lyra.server.client import remote as remote_module
from lyra.server.client.remote import RemoteKernel
from lyra.server.client.wire import VALUES, answer_class
from lyra.server.generated import engine_pb2 as pb
from lyra.server.identity import TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings

CALLS = {name: call for name, call in kernel_calls.CALLS.items() if call.rpc}
OPERATOR = "operator-token-0123456789"
ALICE = "alice-token-0123456789abc"
TOKENS = TokenTable({OPERATOR: "", ALICE: "alice"})
PIPELINE = {"name": "p", "agents": [{"name": "shout"}]}


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 120.0))

    return run


async def shout(envelope: Envelope) -> dict[str, Any]:
    return {"text": envelope.raw_input.upper()}


@asynccontextmanager
async def served(store: str = "memory", address: str = "127.0.0.1:0", **changes: Any) -> AsyncIterator[Server]:
    kernel = Kernel(store)
    kernel.register_agent("shout", shout)
    settings = ServeSettings(tokens=TOKENS, grpc=Address.parse(address), drain_s=2.0, **changes)
    async with Server(kernel, settings) as server:
        yield server


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Kernel, RemoteKernel]]:
    async with (
        served() as server,
        lyra.connect(str(server.grpc), **{"token": OPERATOR, "user_id": "ada", **options}) as remote,
    ):
        yield server.kernel, remote


@on_loop
async def test_processes() -> None:
    """Processes are submitted, scheduled, moved and ended as in the kernel, and come back as its own values."""
    async with connected() as (kernel, remote):
        block = await remote.submit("job", request_id="r1", priority="high", quota={"max_llm_calls": 3})
        assert isinstance(block, ProcessControlBlock)
        assert (block.pid, block.state, block.priority, block.quota.max_llm_calls) == ("job", "new", "high", 3)
        assert (block.user_id, block.request_id, block.pending_interrupt) == ("ada", "r1", None)
        assert block.created_at == pytest.approx(kernel.get_process("job").created_at, abs=0.001)
        assert (await remote.schedule("job")).state == "ready"
        assert (await remote.transition_state("job", "running", reason="taken")).state == "running"
        usage = await remote.record_usage("job", llm_calls=2, tokens_in=5)
        assert isinstance(usage, ResourceUsage)
        assert (usage.llm_calls, usage.tokens_in) == (2, 5)
        quota = await remote.check_quota("job")
        assert isinstance(quota, QuotaResult)
        assert quota.within_bounds
        assert [process.pid for process in await remote.list_processes(state="running")] == ["job"]
        counts = await remote.get_process_counts()
        assert (counts["running"], counts.total, counts.queue_depth) == (1, 1, 0)
        assert (await remote.terminate("job", reason="done", force=True)).state == "terminated"
        assert (await remote.get_process("job")).terminal


@on_loop
async def test_what_is_made_belongs_to_the_session_of_the_connection() -> None:
    """`session_id` of `lyra.connect` is that of processes and envelopes that name none."""
    async with connected(session_id="s1") as (kernel, remote):
        await remote.submit("job")
        assert kernel.get_process("job").session_id == "s1"
        assert (await remote.create_envelope(raw_input="hello")).session_id == "s1"


@on_loop
async def test_the_next_runnable_process_is_the_operators() -> None:
    """Without a user the operator takes the next process of all; an empty queue gives None."""
    async with connected(user_id=None) as (kernel, remote):
        assert await remote.get_next_runnable() is None
        kernel.submit("job", user_id="ada")
        kernel.schedule("job")
        assert (await remote.get_next_runnable()).pid == "job"


@on_loop
async def test_rates_and_the_state_of_the_system() -> None:
    """Rate limits count by default, and the status has the fields of the contract."""
    async with connected() as (_kernel, remote):
        result = await remote.check_rate_limit("ada", "chat")
        assert isinstance(result, RateLimitResult)
        assert (result.allowed, result.current_count) == (True, 1)
        assert (await remote.check_rate_limit("ada", "chat", record=False)).current_count == 1
        await remote.submit("job")
        status = await remote.get_system_status()
        assert status.total_processes == 1
        assert status.uptime_seconds > 0
        assert (status.resources.llm_calls, status.interrupts["pending"]) == (0, 0)
        request = await remote.get_request_status("job")
        assert (request.pcb.pid, request.state, request.pending_interrupt) == ("job", "new", None)
        assert request.remaining_budget.llm_calls_remaining == 100


@on_loop
async def test_envelopes() -> None:
    """Envelopes are made, changed, copied and checked, and are the kernel's own type."""
    async with connected() as (_kernel, remote):
        envelope = await remote.create_envelope(raw_input="hello", metadata={"tag": "x"})
        assert isinstance(envelope, Envelope)
        assert (envelope.raw_input, envelope.user_id, envelope.metadata) == ("hello", "ada", {"tag": "x"})
        envelope.outputs = {"shout": {"text": "HELLO"}}
        changed = await remote.update_envelope(envelope)
        assert changed.outputs == {"shout": {"text": "HELLO"}}
        assert (await remote.clone_envelope(envelope)).envelope_id != envelope.envelope_id
        assert (await remote.check_bounds(envelope)).can_continue
        envelope.llm_call_count = envelope.max_llm_calls
        assert not (await remote.check_bounds(envelope)).can_continue


@on_loop
async def test_runs_of_pipelines_and_agents() -> None:
    """A pipeline's events come one by one with its envelope; one agent gives its output."""
    async with connected() as (kernel, remote):
        events = [event async for event in remote.execute_pipeline(PIPELINE, "hello", pid="run")]
        assert [event.type for event in events][:2] == ["stage_started", "stage_completed"]
        assert isinstance(events[-1].envelope, Envelope)
        assert events[-1].envelope.outputs == {"shout": {"text": "HELLO"}}
        run = await remote.execute_agent("shout", {"raw_input": "one"})
        assert (run.success, run.output) == (True, {"text": "ONE"})
        assert kernel.get_process("run").terminal


@on_loop
async def test_pipelines_whose_agents_run_in_the_caller() -> None:
    """Instructions say what comes next; a report that is made twice changes nothing."""
    async with connected() as (_kernel, remote):
        config = {"name": "p", "agents": [{"name": "a", "default_next": "b"}, {"name": "b", "stage_order": 1}]}
        state = await remote.initialize_orchestration("run", config, {"raw_input": "hi"})
        assert (state.current_stage, state.stage_order) == ("a", ["a", "b"])
        instruction = await remote.get_next_instruction("run")
        assert (instruction.kind, instruction.agent_name) == ("run_agent", "a")
        assert instruction.envelope.raw_input == "hi"
        report = {"agent_name": "a", "output": {"n": 1}, "metrics": {"llm_calls": 1}, "run_id": instruction.run_id}
        for _ in range(2):
            assert (await remote.report_agent_result("run", report)).agent_name == "b"
        ended = await remote.report_agent_result("run", {"agent_name": "b", "error": "no"})
        assert (ended.kind, ended.terminal_reason) == ("terminate", "tool_failed_fatally")
        assert (await remote.get_orchestration_state("run")).terminated


@on_loop
async def test_questions() -> None:
    """Questions are put, listed, answered and taken back."""
    async with connected() as (_kernel, remote):
        await remote.submit("job")
        asked = await remote.create_interrupt(
            "job", "confirmation", "really?", question="go on?", data={"n": 1}, ttl_s=60
        )
        assert isinstance(asked, Interrupt)
        assert (asked.kind, asked.question, asked.data, asked.status) == ("confirmation", "go on?", {"n": 1}, "pending")
        assert [interrupt.id for interrupt in await remote.list_interrupts("job")] == [asked.id]
        answered = await remote.resolve_interrupt(asked.id, {"approved": True, "text": "yes"})
        assert (answered.status, answered.response.approved, answered.response.text) == ("resolved", True, "yes")
        other = await remote.create_interrupt("job", "clarification", question="which?")
        assert (await remote.cancel_interrupt(other.id, reason="never mind")).status == "cancelled"
        assert await remote.list_interrupts("job", status="pending") == []


@on_loop
async def test_services() -> None:
    """Services are registered, listed and dispatched to; a response is the kernel's own value."""
    async with connected() as (kernel, remote):
        info = await remote.register_service({"name": "mail", "service_type": "worker", "max_concurrent": 2})
        assert isinstance(info, ServiceInfo)
        kernel.register_handler("mail", lambda request: {"echo": request.metadata})
        request = ServiceRequest(envelope=None, metadata={"to": "bob"})
        response = await remote.dispatch("mail", request, timeout_s=5)
        assert isinstance(response, ServiceResponse)
        assert response.metadata == {"echo": {"to": "bob"}}
        assert (await remote.update_health("mail", "degraded")).status == "degraded"
        assert [service.name for service in await remote.list_services()] == ["mail"]
        assert (await remote.unregister_service("mail")).name == "mail"


@on_loop
async def test_the_message_bus() -> None:
    """Events reach a subscription, commands and queries their handler."""
    async with connected() as (kernel, remote):
        commands: list[Any] = []

        async def take(payload: Any) -> None:
            commands.append(payload.payload)

        async def double(payload: Any) -> Any:
            return payload.payload * 2

        kernel.bus.register_handler("do", take)
        kernel.bus.register_handler("double", double)
        await remote.send("do", {"n": 1})
        assert commands == [{"n": 1}]
        assert await remote.query("double", 21, timeout_s=5) == 42
        stream = remote.subscribe(["news"])
        first = asyncio.ensure_future(anext(stream))
        while not first.done():
            await remote.publish("news", {"n": 2})
            await asyncio.sleep(0.02)
        assert (first.result().event_type, first.result().payload) == ("news", {"n": 2})
        await stream.aclose()


def test_every_rpc_but_the_workers_is_a_method() -> None:
    """The table has each RPC of the contract once."""
    expected = {
        f"{service.name}/{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if service.name != "WorkerService"
    }
    rpcs = [call.rpc for call in CALLS.values()]
    assert set(rpcs) == expected
    assert len(rpcs) == len(expected)


def test_methods_are_those_of_the_kernel() -> None:
    """A name that the kernel has means the same here."""
    elsewhere = {
        "create_envelope": "Envelope.create",
        "update_envelope": "store_envelope",
        "clone_envelope": "Envelope.clone",
        "check_bounds": "Envelope.check_bounds",
        "query": "bus",
        "subscribe": "bus",
        "cancel_interrupt": "interrupts",
        "list_interrupts": "interrupts",
        "update_health": "services",
        "list_services": "services",
    }
    assert {name for name in CALLS if not hasattr(Kernel, name) and name != "publish"} <= set(elsewhere)


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        (("get_process", "nope"), NoSuchProcess, "no_such_process"),
        (("schedule", "old"), InvalidTransition, "invalid_transition"),
        (("transition_state", "old", "zombie"), InvalidTransition, "invalid_transition"),
        (("initialize_orchestration", "old", {"name": ""}), ConfigError, "config"),
        (("resolve_interrupt", "int_no", {"text": "x"}), NoSuchInterrupt, "no_such_interrupt"),
        (("dispatch", "nope"), NoSuchService, "no_such_service"),
        (("initialize_orchestration", "run", PIPELINE), NameTaken, "name_taken"),
        (("get_process", "alices"), NoSuchProcess, "no_such_process"),
        (("submit", "alices"), Denied, "denied"),
        (("schedule", "spent"), LimitExceeded, "limit"),
    ],
)
@on_loop
async def test_errors_are_the_kernels_own(call: tuple[Any, ...], error: type[LyraError], code: str) -> None:
    """An error of the kernel is raised in the client with its class, its code and its sentence."""
    async with connected() as (kernel, remote):
        kernel.submit("old", user_id="ada")
        kernel.schedule("old")
        kernel.submit("alices", user_id="alice")
        kernel.submit("spent", user_id="ada", quota={"max_llm_calls": 1})
        kernel.record_usage("spent", llm_calls=2)
        kernel.initialize_orchestration("run", PIPELINE, {"user_id": "ada"})
        name, *args = call
        with pytest.raises(error) as raised:
            await getattr(remote, name)(*args)
        assert raised.value.code == code
        assert raised.value.message


@pytest.mark.parametrize(
    ("name", "args", "options", "error"),
    [
        ("get_process", (), {}, TypeError),
        ("get_process", ("a",), {"colour": 1}, TypeError),
        ("transition_state", ("a", "purple"), {}, ConfigError),
        ("submit", ("a",), {"quota": {"max_dreams": 1}}, ConfigError),
        ("submit", ("a",), {"quota": {"max_llm_calls": "many"}}, ConfigError),
        ("check_bounds", (7,), {}, ConfigError),
    ],
)
@on_loop
async def test_wrong_arguments_are_refused_here(name: str, args: Any, options: Any, error: type[Exception]) -> None:
    """A mistake in a call is told before anything is sent."""
    async with lyra.connect("127.0.0.1:1", token=OPERATOR) as remote:
        with pytest.raises(error):
            await getattr(remote, name)(*args, **options)


@on_loop
async def test_who_calls() -> None:
    """An unknown token is Unauthenticated; a bound token acts for its user and for no other."""
    async with served() as server:
        address = str(server.grpc)
        async with lyra.connect(address, token="unknown-token-0123456789") as remote:
            with pytest.raises(Unauthenticated):
                await remote.get_system_status()
        async with lyra.connect(address, token=ALICE) as remote:
            assert (await remote.submit("job")).user_id == "alice"
        async with lyra.connect(address, token=ALICE, user_id="bob") as remote:
            with pytest.raises(Denied):
                await remote.submit("other")


def test_tokens_do_not_travel_in_plain_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another machine needs TLS, or `plaintext`; a missing token is told at once; no error shows a token."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LYRA_TOKEN", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(ConfigError, match="plain text"):
        lyra.connect("example.org:8420", token=OPERATOR)
    with pytest.raises(ConfigError, match="no token"):
        lyra.connect("127.0.0.1:8420")
    with pytest.raises(ConfigError, match="is no address"):
        lyra.connect("8420", token=OPERATOR)
    with pytest.raises(TypeError, match="colour"):
        lyra.connect("127.0.0.1:8420", token=OPERATOR, colour=1.0)  # type: ignore[call-arg]
    remote = lyra.connect("example.org:8420", token=OPERATOR, plaintext=True)
    assert OPERATOR not in repr(remote.connection.settings)
    monkeypatch.setenv("LYRA_TOKEN", "from-the-variable-0123")
    assert lyra.connect("127.0.0.1:8420").connection.settings.token == "from-the-variable-0123"
    limited = lyra.connect("127.0.0.1:8420", timeout_s=3.0, reconnect_s=7.0).connection.settings
    assert (limited.timeout_s, limited.reconnect_s) == (3.0, 7.0)


@on_loop
async def test_deadlines() -> None:
    """A call that takes longer than its deadline is DeadlineExceeded."""
    async with connected(timeout_s=30.0) as (kernel, remote):

        async def slow(request: Any) -> None:
            await asyncio.sleep(30.0)

        kernel.register_service({"name": "slow"})
        kernel.register_handler("slow", slow)
        with pytest.raises(DeadlineExceeded):
            await remote.within(0.2).dispatch("slow")


@on_loop
async def test_calls_that_may_be_repeated_wait_for_a_restart(tmp_path: Path) -> None:
    """While the server is away a reading call waits and succeeds; one that changes something fails at once."""
    path = str(tmp_path / "store.db")
    async with served(path) as server:
        address = str(server.grpc)
        remote = lyra.connect(address, token=OPERATOR, user_id="ada")
        await remote.submit("job")
    with pytest.raises(Overloaded, match="cannot be reached"):
        await remote.schedule("job")
    waiting = asyncio.ensure_future(remote.get_process("job"))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    async with served(path, address):
        assert (await waiting).pid == "job"
        await remote.close()


@on_loop
async def test_a_server_that_stays_away_is_given_up() -> None:
    """A call waits for a server that cannot be reached as long as `reconnect_s` says."""
    async with lyra.connect("127.0.0.1:1", token=OPERATOR, reconnect_s=0.5) as remote:
        with pytest.raises(Overloaded, match="cannot be reached"):
            await remote.get_system_status()


def test_the_declared_methods_are_the_table() -> None:
    """What type checkers see of a remote kernel (names, parameters, values) is what its table of calls does."""
    tree = ast.parse(Path(remote_module.__file__ or "").read_text())
    kernel = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RemoteKernel")
    block = next(node for node in kernel.body if isinstance(node, ast.If))
    declared = {node.name: node for node in block.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert list(declared) == list(CALLS)
    for name, call in CALLS.items():
        arguments = declared[name].args
        names = [argument.arg for argument in arguments.args][1:]
        required = names[: len(names) - len(arguments.defaults)]
        assert names == list(call.signature.parameters), name
        unset = [word for word, parameter in call.signature.parameters.items() if parameter.default is parameter.empty]
        assert required == unset, name
        assert isinstance(declared[name], ast.FunctionDef) == call.is_marked("streams"), name
        assert ast.unparse(declared[name].returns or ast.Constant(None)) == _value_type(call), name


def _value_type(call: KernelCall) -> str:
    """Return the type of a call's value, from the messages of the contract."""
    answer = answer_class(call.rpc).DESCRIPTOR
    if call.gives == "nothing":
        return "None"
    if call.gives:
        field = answer.fields_by_name[call.gives]
        return f"list[{_class_name(field.message_type)}]" if field.message_type is not None else "Any"
    if call.is_marked("streams"):
        return f"AsyncGenerator[{_class_name(answer)}, None]"
    return f"{_class_name(answer)} | None" if call.is_marked("maybe") else _class_name(answer)


_RECORDS = ("Instruction", "SessionState", "SystemStatus", "RequestStatus")  # put together for the client
_NAMES = {
    "FlowInterrupt": "Interrupt",
    "DispatchServiceResponse": "ServiceResponse",
    "ProcessCountsResponse": "ProcessCounts",
}


def _class_name(message: Any) -> str:
    """Return the name of the kernel's class for a message, or RemoteRecord where it has none."""
    has_class = message.name in VALUES and message.name not in _RECORDS
    return _NAMES.get(message.name, message.name) if has_class else "RemoteRecord"
