"""What hosts and clients ask of a host: one table of methods, each a function of the host and plain data.

`shard` in the data says which kernel is meant; a host that has not got it answers with a Conflict whose field
`elsewhere` is true, and the caller looks in the directory again. A spawn can be repeated, since its pid is chosen by
the caller; a message of a client is a post with a number, like those of shards. Nothing else here changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.cluster.tables import list_live
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, NoSuchProcess
from lyra.kernel.journal.rows import error_to_row
from lyra.kernel.programs.registry import unknown_program

if TYPE_CHECKING:
    from lyra.cluster.host import Host
    from lyra.kernel.process.process import Process


_AT_ONCE: Final = 200  # records made in one go


async def answer_call(host: Host, method: str, data: dict[str, Any]) -> Any:
    """Answer one call; ConfigError for a method that this version does not know."""
    call = CALLS.get(method)
    if call is None:
        raise ConfigError(f"this host does not know the call {method!r}", hint="is it an older version?")
    return await call(host, data)


async def _take(host: Host, data: dict[str, Any]) -> int:
    remote = host.kernel_of(data["shard"]).core.remote
    return int(await remote.take(data["from"], data["first"], data["posts"]))


async def _spawn(host: Host, data: dict[str, Any]) -> str:
    """Start a program under a pid that the client chose; a pid that is there gives that process."""
    kernel = host.kernel_of(data["shard"])
    program = kernel.programs.get(data["program"])
    if program is None:
        raise unknown_program(data["program"])
    options: dict[str, Any] = {
        name: data[name] for name in ("name", "budget", "priority", "recovery_attempts") if name in data
    }
    if "grant" in data:
        options["grant"] = Grant.from_data(data["grant"])
    args = kernel.programs.arguments(program, data["args"])
    handle = await kernel.spawn(program, *args, pid=data["pid"], **options)
    return str(handle.pid)


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


async def _kill(host: Host, data: dict[str, Any]) -> None:
    await host.kernel_of(data["shard"]).kill(data["pid"], data["reason"])


async def _processes(host: Host, data: dict[str, Any]) -> list[dict[str, Any]]:
    """List the processes of the shards that are open here, the live ones only unless `all` is asked for."""
    return [
        describe_process(shard, process)
        for shard, kernel in host.kernels.items()
        if data.get("shard") in (None, shard)
        for process in kernel.processes.values()
        if data.get("all") or process.exit is None
    ]


def describe_process(shard: str, process: Process) -> dict[str, Any]:
    """Return a process as `lyra ps` over a cluster shows it."""
    parent = process.parent
    return {
        "address": f"{shard}/{process.pid}",
        "shard": shard,
        "pid": process.pid,
        "name": process.name,
        "program": process.program,
        "parent": None if parent is None else f"{shard}/{parent.pid}",
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


async def _status(host: Host, _data: dict[str, Any]) -> dict[str, Any]:
    """Tell what the host knows of itself: its shards, posts that wait, what is wrong."""
    shards = {
        shard: {
            "processes": kernel.live,
            "waiting_posts": {to: len(posts) for to, posts in kernel.core.remote.state.posts.items()},
            "waiting_since": {to: min(times.values()) for to, times in kernel.core.remote.state.times.items() if times},
        }
        for shard, kernel in host.kernels.items()
    }
    return {"name": host.name, "version": host.row.version, "shards": shards, "problem": host.problem}


CALLS: Final[dict[str, Callable[[Host, dict[str, Any]], Awaitable[Any]]]] = {
    "take": _take,
    "spawn": _spawn,
    "wait": _wait,
    "kill": _kill,
    "give": _give,
    "processes": _processes,
    "table": _table,
    "status": _status,
}
