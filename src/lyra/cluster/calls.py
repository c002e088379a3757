"""What hosts and clients ask of a host: one table of methods, each a function of the host and plain data.

`shard` in the data says which kernel is meant; a host that has not got it answers with a Conflict whose field
`elsewhere` is true, and the caller looks in the directory again. A spawn can be repeated, since its pid is chosen by
the caller; a message of a client is a post with a number, like those of shards; a schedule and an answer to a question
that are there already change nothing; a question to an agent has a ref of its client. A dispatch is made
once. Nothing else here changes anything.

`list_live` gives the live processes of a shard, as `lyra ps` shows them. It makes the records from the kernel's own
table, without reading the journal. They say what the fold of the journal says (`observe.history.processes`), but for
two things: what children that ended had spent counts for the process above them, and restarts are those of the
supervisors' tables.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.limits import EVENTS_AT_ONCE, EVENTS_BYTES_AT_ONCE
from lyra.core.naming import to_fixed_name
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, Conflict, LyraError, NoSuchInterrupt, NoSuchProcess
from lyra.kernel.base.waiting import resume
from lyra.kernel.interrupts.interrupt import Answer
from lyra.kernel.journal.rows import error_to_row
from lyra.kernel.programs.registry import unknown_program
from lyra.observe.history.processes import ProcessRecord
from lyra.store.ended import subtract

if TYPE_CHECKING:
    from lyra.cluster.host import Host
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.store.protocol import Store


_AT_ONCE: Final = 200  # records made in one go
WORK_DESK: Final = "work.shard"  # the part of a kernel that answers workers: `server.grpc.shared_work.ShardDesk`
_ENDED: Final = frozenset({"terminated", "zombie"})


async def answer_call(host: Host, method: str, data: dict[str, Any]) -> Any:
    """Answer one call; ConfigError for a method that this version does not know.

    A call that meets the end of the kernel, because the shard moves or is lost, gives the Conflict that sends its
    caller to the host that has the shard then.
    """
    call = CALLS.get(method)
    if call is None:
        raise ConfigError(f"this host does not know the call {method!r}", hint="is it an older version?")
    shard = data.get("shard")
    kernel = None if shard is None else host.kernels.get(shard)
    try:
        return await call(host, data)
    except LyraError as error:
        if kernel is not None and (kernel.failure is not None or not kernel.open):
            raise elsewhere(host, str(shard)) from error  # closed meanwhile; all calls can be repeated
        raise


def elsewhere(host: Host, shard: str) -> Conflict:
    """Return the answer of a host that has not got a shard, or not any more."""
    return Conflict(f"shard {shard} is not open on host {host.name}", elsewhere=True, shard=shard)


async def _take(host: Host, data: dict[str, Any]) -> int:
    remote = host.kernel_of(data["shard"]).core.remote
    return int(await remote.take(data["from"], data["first"], data["posts"]))


async def _spawn(host: Host, data: dict[str, Any]) -> str:
    """Start a program under a pid that the client chose; a pid that is there gives that process."""
    kernel = host.kernel_of(data["shard"])
    program = kernel.programs.get(data["program"])
    if program is None:
        raise unknown_program(data["program"], kernel.programs)
    options: dict[str, Any] = {
        name: data[name] for name in ("name", "budget", "priority", "recovery_attempts", "supervision") if name in data
    }
    if "grant" in data:
        options["grant"] = Grant.from_data(data["grant"])
    args = kernel.programs.arguments(program, data["args"])
    within = data.get("within")
    if within is None or data["pid"] in kernel.processes:
        handle = await kernel.spawn(program, *args, pid=data["pid"], **options)
        return str(handle.pid)
    loans = kernel.core.remote.loans
    scope = loans.borrow(data["pid"], within["home"], within, options.get("budget") or {})
    try:
        handle = kernel.spawn(program, *args, pid=data["pid"], **{**options, "budget": scope})
    except BaseException:
        loans.give_up(scope)
        raise
    loans.process_started(kernel.processes[handle.pid])
    await handle
    return str(handle.pid)


async def _budget(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Make a budget of the cluster, or end it; gives what is used of it."""
    kernel = host.kernel_of(data["shard"])
    loans = kernel.core.remote.loans
    if "limits" in data:
        loans.share(data["name"], data["limits"])
    figures: dict[str, Any] = loans.read_shared(data["name"])
    if data.get("close"):
        loans.close_shared(data["name"])
    await kernel.durable()
    return figures


async def _share(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Lend a share of a rate limit whose home is here."""
    answer: dict[str, Any] = await host.kernel_of(data["shard"]).core.remote.shares.answer(data)
    return answer


async def _rate(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Count a request whose user and endpoint have their home here, if it fits."""
    answer: dict[str, Any] = await host.kernel_of(data["shard"]).core.remote.rates.answer(data)
    return answer


async def _wait(host: Host, data: dict[str, Any]) -> dict[str, Any] | None:
    """Wait for the end of a process, for so long; None where it lives on."""
    kernel = host.kernel_of(data["shard"])
    process = kernel.core.lookup(data["pid"])
    if process is None:
        refused = kernel.core.remote.acts.find_refusal(data["pid"])
        if refused is not None:
            return {"reason": "error", "result": None, "error": refused}
        raise NoSuchProcess(f"no process {data['pid']!r} on shard {data['shard']}", pid=data["pid"])
    try:
        ended = await asyncio.wait_for(kernel.process(process.pid).wait(), data["within_s"])
    except TimeoutError:
        return None
    error = None if ended.error is None else error_to_row(ended.error)
    return {"reason": ended.reason, "result": ended.result, "error": error}


async def _ask(host: Host, data: dict[str, Any]) -> dict[str, Any] | None:
    """Put a question of a client to an agent, or find the one that was put; None where it has no answer for so long."""
    asks = host.kernel_of(data["shard"]).core.remote.asks
    answer: dict[str, Any] | None = await asks.ask_here(data, within_s=data["within_s"])
    return answer


async def _let_go(host: Host, data: dict[str, Any]) -> None:
    await host.kernel_of(data["shard"]).core.remote.asks.let_go(data["ref"])


async def _pieces(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    asks = host.kernel_of(data["shard"]).core.remote.asks
    told: dict[str, Any] = await asks.read_pieces(data["key"], data["life"], data["after"], data["wait_s"])
    return told


async def _history(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation of an agent."""
    kernel = host.kernel_of(data["shard"])
    agent = kernel.agent(data["pid"])
    messages = [message.to_data() for message in await agent.history()]
    return {"messages": messages, "marked": agent.pid in kernel.taint.state.pids}


async def _kill(host: Host, data: dict[str, Any]) -> None:
    await host.kernel_of(data["shard"]).kill(data["pid"], data["reason"])


async def _processes(host: Host, data: dict[str, Any]) -> list[dict[str, Any]]:
    """List the processes of the shards that are open here, the live ones only unless `all` is asked for."""
    return [
        describe_process(shard, kernel, process)
        for shard, kernel in host.kernels.items()
        if data.get("shard") in (None, shard)
        for process in kernel.processes.values()
        if data.get("all") or process.exit is None
    ]


def describe_process(shard: str, kernel: Kernel, process: Process) -> dict[str, Any]:
    """Return a process as `cluster.processes()` lists it; its parent may be on another shard."""
    parent = process.parent
    return {
        "address": f"{shard}/{process.pid}",
        "shard": shard,
        "pid": process.pid,
        "name": process.name,
        "program": process.program,
        "parent": kernel.core.remote.acts.parents.get(process.pid) if parent is None else f"{shard}/{parent.pid}",
        "state": process.state,
        "created_at": process.created_at,
        "spent": process.spent.to_data(),
        "reason": None if process.exit is None else process.exit.reason,
    }


async def _give(host: Host, data: dict[str, Any]) -> str | None:
    return await host.give(data["to"], data["format"])


async def _table(host: Host, data: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """List the live processes of the shards that are open here, by shard, as records that `lyra ps` shows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for shard, kernel in list(host.kernels.items()):
        if data.get("shard") in (None, shard):
            rows = tables[shard] = []
            for record in list_live(kernel):
                rows.append(msgspec.to_builtins(record))
                if len(rows) % _AT_ONCE == 0:
                    await asyncio.sleep(0)  # the kernels go on meanwhile
    return tables


# ---------------------------------------------------------------------- what shards share


async def _dispatch(host: Host, data: dict[str, Any]) -> Any:
    return await host.kernel_of(data["shard"]).core.remote.services.answer(data)


async def _work(host: Host, data: dict[str, Any]) -> Any:
    """Have the desk of a shard answer a worker that is connected to any host."""
    desk: Any = host.kernel_of(data["shard"]).parts.get(WORK_DESK)
    if desk is None:
        raise elsewhere(host, data["shard"])  # this host serves no workers
    return await desk.answer(data)


async def _whereis(host: Host, data: dict[str, Any]) -> list[str]:
    """List the addresses of the processes of that name on the shards that are open here."""
    return [
        f"{shard}/{kernel.names[data['name']].pid}"
        for shard, kernel in host.kernels.items()
        if data["name"] in kernel.names
    ]


async def _interrupts(host: Host, _data: dict[str, Any]) -> list[dict[str, Any]]:
    """List the questions that wait for an answer on the shards that are open here."""
    return [
        describe_interrupt(shard, kernel, interrupt)
        for shard, kernel in host.kernels.items()
        for interrupt in kernel.interrupts.list_interrupts(status="pending")
    ]


def describe_interrupt(shard: str, kernel: Kernel, interrupt: Interrupt) -> dict[str, Any]:
    """Return a question as the inbox of a cluster shows it."""
    process = kernel.core.lookup(interrupt.pid)
    return {
        "id": interrupt.id,
        "shard": shard,
        "pid": interrupt.pid,
        "address": f"{shard}/{interrupt.pid}",
        "name": None if process is None else process.name,
        "program": None if process is None else process.program,
        "kind": interrupt.kind,
        "question": interrupt.question,
        "message": interrupt.message,
        "data": interrupt.data,
        "user_id": interrupt.user_id,
        "since": interrupt.created_at,
        "expires_at": interrupt.expires_at,
        "status": interrupt.status,
        "tainted": interrupt.tainted,
    }


async def _has_interrupt(host: Host, data: dict[str, Any]) -> str | None:
    """Return the shard open here that has a question; None where none has it."""
    for shard, kernel in host.kernels.items():
        with suppress(NoSuchInterrupt):
            kernel.interrupts.get_status(data["id"])
            return shard
    return None


async def _find_interrupt(host: Host, data: dict[str, Any]) -> str:
    """Return the id of the oldest open question of a process."""
    kernel = host.kernel_of(data["shard"])
    process = kernel.core.lookup(data["pid"])
    oldest = kernel.interrupts.get_pending_interrupt(data["pid"] if process is None else process.pid)
    if oldest is None:
        raise NoSuchInterrupt(
            f"{data['shard']}/{data['pid']} asks nothing", hint="cluster.interrupts() lists what is asked"
        )
    return oldest.id


async def _resolve_interrupt(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Answer a question; the same answer again, as after a call that was cut off, changes nothing."""
    kernel = host.kernel_of(data["shard"])
    interrupt = kernel.interrupts.get_interrupt(data["id"])
    answer, given = Answer.of(data["answer"]), interrupt.response
    is_repeated = given is not None and (answer.text, answer.approved, answer.decision, answer.data) == (
        given.text,
        given.approved,
        given.decision,
        given.data,
    )
    if interrupt.status != "resolved" or not is_repeated:
        kernel.interrupts.resolve(data["id"], answer, user_id=data["user_id"])
    await kernel.durable()
    return describe_interrupt(data["shard"], kernel, kernel.interrupts.get_interrupt(data["id"]))


async def _schedule(host: Host, data: dict[str, Any]) -> bool:
    """Keep a schedule, or forget it where its definition is None; False where there is none to forget."""
    kernel = host.kernel_of(data["shard"])
    schedules, name = kernel.schedules, data["name"]
    was_there = name in schedules.entries
    if data["entry"] is None:
        schedules.drop(name)
    else:
        schedules.put(name, data["entry"])
    await kernel.durable()
    return was_there


async def _schedules(host: Host, _data: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for kernel in host.kernels.values() for row in kernel.schedules.list_kept()]


async def _events(host: Host, data: dict[str, Any]) -> dict[str, Any]:
    """Return durable rows of a shard, or of one process of it, after a number, waiting for the next one if there are
    none; `upto` is the last row that was looked at. Without a number, return the number of the last row."""
    shard, after, pid = data["shard"], data["after"], data.get("pid")
    core = host.kernel_of(shard).core
    journal = core.journal
    assert journal is not None
    if after is None:
        return {"rows": [], "upto": journal.durable_seq}
    until_s = core.clock.monotonic() + data["wait_s"]
    while True:
        if journal.durable_seq <= after:
            await _until_durable(core, after + 1, max(0.0, until_s - core.clock.monotonic()))
            host.kernel_of(shard)  # it may have closed meanwhile
        if journal.durable_seq <= after:
            return {"rows": [], "upto": after}
        read = (read_rows, journal.store, after, journal.durable_seq, data["kinds"], pid)
        answer: dict[str, Any] = await core.call(*read)
        if pid is None or answer["rows"] or core.clock.monotonic() >= until_s:
            return answer
        after = answer["upto"]


async def _until_durable(core: Core[Process], seq: int, wait_s: float) -> None:
    """Return when a row is durable, or after so long."""
    done: asyncio.Future[None] = core.loop.create_future()

    def on_commit(last: int) -> None:
        if last >= seq:
            resume(done)

    core.after_commit.append(on_commit)
    timer = core.clock.call_at(core.clock.monotonic() + wait_s, lambda: resume(done))
    try:
        await done
    finally:
        timer.cancel()
        core.after_commit.remove(on_commit)


def read_rows(store: Store, after: int, upto: int, kinds: list[str] | None, pid: str | None = None) -> dict[str, Any]:
    """Read some rows after a number, of some kinds or all, of one process or all; Conflict where rows after it are not
    kept any more."""
    first = store.first_seq()
    if 0 < after < first - 1:
        raise Conflict(
            f"rows {after + 1} to {first - 1} are not kept any more",
            hint="retention_s says how long rows are kept; begin anew without a position",
            dropped=True,
            first=first,
        )
    if pid is None:
        upto = min(upto, max(after, first - 1) + EVENTS_AT_ONCE)
    rows: list[list[Any]] = []
    size = 0
    for seq, time, of, kind, raw in store.read(after=after, upto=upto, pid=pid):
        if kinds is None or kind in kinds:
            if size > EVENTS_BYTES_AT_ONCE or len(rows) == EVENTS_AT_ONCE:
                return {"rows": rows, "upto": seq - 1}
            rows.append([seq, time, of, kind, bytes(raw)])
            size += len(raw)
    return {"rows": rows, "upto": upto}


async def _status(host: Host, _data: dict[str, Any]) -> dict[str, Any]:
    """Tell what the host knows of itself: its shards, posts that wait, what is wrong."""
    shards = {
        shard: {
            "processes": kernel.live,
            "open_s": round(kernel.get_system_status().uptime_seconds, 1),
            "waiting_posts": {to: len(posts) for to, posts in kernel.core.remote.state.posts.items()},
            "waiting_since": {to: min(times.values()) for to, times in kernel.core.remote.state.times.items() if times},
        }
        for shard, kernel in host.kernels.items()
    }
    return {"name": host.name, "version": host.row.version, "shards": shards, "problem": host.problem}


CALLS: Final[dict[str, Callable[[Host, dict[str, Any]], Awaitable[Any]]]] = {
    "take": _take,
    "spawn": _spawn,
    "budget": _budget,
    "share": _share,
    "rate": _rate,
    "wait": _wait,
    "ask": _ask,
    "let_go": _let_go,
    "pieces": _pieces,
    "history": _history,
    "kill": _kill,
    "give": _give,
    "processes": _processes,
    "table": _table,
    "dispatch": _dispatch,
    "work": _work,
    "whereis": _whereis,
    "interrupts": _interrupts,
    "has_interrupt": _has_interrupt,
    "find_interrupt": _find_interrupt,
    "resolve_interrupt": _resolve_interrupt,
    "schedule": _schedule,
    "schedules": _schedules,
    "events": _events,
    "status": _status,
}


def list_live(kernel: Kernel) -> Iterator[ProcessRecord]:
    """Yield the records of the processes that live; the caller may pause between two of them."""
    questions: dict[str, dict[str, str]] = {}
    for interrupt in kernel.interrupts.pending():
        asker = kernel.interrupts.asker(interrupt)
        questions.setdefault(asker, {})[interrupt.id] = interrupt.question or interrupt.message
    restarts = _count_restarts(kernel)
    parents = kernel.core.remote.acts.parents if kernel.core.remote is not None else {}
    entries = kernel.lifecycle.state.entries
    for process in list(kernel.processes.values()):
        if process.exit is None:
            record = _describe(kernel, process)
            record.restarts = restarts[process.pid]
            record.parent_elsewhere = parents.get(process.pid, "")
            record.questions = questions.get(process.pid, {})
            if record.questions and record.state == "running":
                record.state = "waiting"
            entry = entries.get(process.pid)
            record.stage = entry.current_stage if entry is not None else ""
            yield record
    for pid, entry in list(entries.items()):
        if pid not in kernel.processes and entry.state not in _ENDED:
            yield ProcessRecord(
                pid,
                parent=entry.parent_pid,
                user_id=entry.user_id,
                state=entry.state,
                stage=entry.current_stage,
                created_at=entry.created_at,
                questions=questions.get(pid, {}),
            )


def _describe(kernel: Kernel, process: Process) -> ProcessRecord:
    inbox, parent = process.inbox or (), process.parent
    return ProcessRecord(
        process.pid,
        program=to_fixed_name(process.program),
        name=process.name or "",
        parent="" if parent is None else parent.pid,
        user_id=kernel.lifecycle.user_of_program(process),
        state="running" if process.kill_reason is None else "stopping",
        reason=process.kill_reason or "",
        created_at=process.created_at,
        limits=process.budget.to_data()["limits"] if process.has_own_budget else None,
        spent=_find_own_spending(process),
        attempts={str(key): count for key, count in (process.attempts or {}).items()},
        mailbox={number: {} for number in range(len(inbox))},
    )


def _find_own_spending(process: Process) -> dict[str, int]:
    """Return what a process spent, without the living below it."""
    own = process.spent.to_data()
    for child in (process.children or {}).values():
        subtract(own, child.spent.to_data())
    return own


def _count_restarts(kernel: Kernel) -> Counter[str]:
    """Return the restarts by pid: of a supervisor those of all its children, of a child its own."""
    restarts: Counter[str] = Counter()
    for pid, table in kernel.supervisors.tables.items():
        for row in table.rows:
            if row.starts > 1:
                restarts[pid] += row.starts - 1
                if row.pid is not None:
                    restarts[row.pid] += row.starts - 1
    return restarts
