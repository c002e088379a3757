"""Processes: list, get, tree, terminate, send a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from lyra.core.limits import SERVER_PAGE_ITEMS, SERVER_PAGE_ITEMS_MAX
from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel.workers.entry import ProcessControlBlock, ProcessState
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery
from lyra.server.http.live_tree import LiveTree, ProcessRow
from lyra.server.owners import find_owner_by_pid, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


Limit = Annotated[int, msgspec.Meta(ge=1, le=SERVER_PAGE_ITEMS_MAX)]


class ProcessView(msgspec.Struct, kw_only=True):
    """A process as the table shows it. Times are seconds since 1970. `attempts` has the calls under way that crashes
    cut off, by key, and how often each was."""

    pid: str
    state: str
    priority: str
    name: str | None
    program: str
    user_id: str
    session_id: str
    request_id: str
    parent_pid: str
    child_pids: tuple[str, ...]
    created_at: float | None
    started_at: float | None
    completed_at: float | None
    current_stage: str
    pending_interrupt: str | None
    termination_reason: str
    usage: dict[str, Any]
    cost_usd: float
    attempts: dict[str, int]


class ProcessTree(msgspec.Struct, kw_only=True):
    """A process and those that it started; one on another shard is named by its address, in the state
    `elsewhere`."""

    pid: str
    state: str
    name: str | None
    program: str
    children: list[ProcessTree]


class ProcessPage(msgspec.Struct, kw_only=True):
    """A page of processes, the oldest first; `next` is the `after` of the page that follows."""

    processes: list[ProcessView]
    total: int
    next: str | None


class PageQuery(RequestQuery):
    limit: Limit = SERVER_PAGE_ITEMS
    after: str = ""


class ProcessQuery(PageQuery):
    state: ProcessState | None = None


class TerminateBody(RequestBody):
    reason: str = ""
    force: bool = True


class MessageBody(RequestBody):
    message: Any


class Accepted(msgspec.Struct):
    accepted: bool = True


def process_view(call: HttpCall, block: ProcessControlBlock) -> ProcessView:
    kernel, remote = call.kernel, call.kernel.core.remote
    process = kernel.processes.get(block.pid)
    parent_pid, child_pids = block.parent_pid, block.child_pids
    if remote is not None:  # those on other shards, by their addresses
        parent_pid = parent_pid or remote.acts.parents.get(block.pid, "")
        child_pids = (*child_pids, *remote.ties.children.get(block.pid, ()))
    return ProcessView(
        pid=block.pid,
        state=block.state,
        priority=block.priority,
        name=None if process is None else process.name,
        program=block.current_service,
        user_id=block.user_id or find_owner_by_pid(kernel, block.pid, process),
        session_id=block.session_id,
        request_id=block.request_id,
        parent_pid=parent_pid,
        child_pids=child_pids,
        created_at=block.created_at,
        started_at=block.started_at,
        completed_at=block.completed_at,
        current_stage=block.current_stage,
        pending_interrupt=block.pending_interrupt,
        termination_reason=block.termination_reason,
        usage=msgspec.structs.asdict(block.usage),
        cost_usd=0.0 if process is None else process.spent.micro_usd / 1_000_000,
        attempts={}
        if process is None or process.exit is not None
        else {str(key): count for key, count in (process.attempts or {}).items()},
    )


def _pids(call: HttpCall, state: str | None) -> list[tuple[float, str]]:
    """When it was made and the pid of every process that the caller may see, the oldest first."""
    kernel, caller = call.kernel, call.caller
    rows = [
        (entry.created_at, pid)
        for pid, entry in kernel.lifecycle.state.entries.items()
        if (state is None or entry.state == state) and caller.owns(entry.user_id)
    ]
    sees_all = caller.is_operator
    rows += [
        (process.created_at or 0.0, process.pid)
        for process in kernel.processes.values()
        if (state is None or (process.stands_for or process).state == state)
        and (sees_all or caller.owns(owner_if_known(kernel, process.pid)))
    ]
    rows.sort()
    return rows


async def list_processes(call: HttpCall) -> ProcessPage:
    query: ProcessQuery = call.query
    rows = _pids(call, query.state)
    start = _place_after(rows, query.after) if query.after else 0
    page = rows[start : start + query.limit]
    more, get_process = start + len(page) < len(rows), call.kernel.lifecycle.get_process
    return ProcessPage(
        processes=[process_view(call, get_process(pid)) for _, pid in page],
        total=len(rows),
        next=f"{page[-1][0]!r}:{page[-1][1]}" if more and page else None,
    )


def _place_after(rows: list[tuple[float, str]], after: str) -> int:
    """Return the index of the first row behind a place that an earlier page gave."""
    when, colon, pid = after.partition(":")
    try:
        place = (float(when), pid)
    except ValueError:
        colon, place = "", (0.0, "")
    if not colon:
        raise ConfigError("`after` takes the value of `next` from the page before", key="after")
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle] <= place:
            low = middle + 1
        else:
            high = middle
    return low


async def get_process(call: HttpCall) -> ProcessView:
    return process_view(call, call.kernel.get_process(call.require_process(call.path["pid"])))


async def get_tree(call: HttpCall) -> ProcessTree:
    return _tree(call, call.require_process(call.path["pid"]), 0)


_DEPTH_MAX: Final = 64


def _tree(call: HttpCall, pid: str, depth: int) -> ProcessTree:
    block = call.kernel.get_process(pid)
    process = call.kernel.processes.get(pid)
    children = block.child_pids if depth < _DEPTH_MAX else ()
    remote = call.kernel.core.remote
    elsewhere = () if remote is None else remote.ties.children.get(pid, ())
    return ProcessTree(
        pid=pid,
        state=block.state,
        name=None if process is None else process.name,
        program=block.current_service,
        children=[
            *(_tree(call, child, depth + 1) for child in children if call.kernel.lifecycle.find(child) is not None),
            *(ProcessTree(pid=child, state="elsewhere", name=None, program="", children=[]) for child in elsewhere),
        ],
    )


async def terminate(call: HttpCall) -> ProcessView:
    pid = call.require_process(call.path["pid"])
    body: TerminateBody = call.body or TerminateBody()
    await call.kernel.terminate(pid, body.reason, force=body.force)
    return process_view(call, call.kernel.get_process(pid))


async def restart(call: HttpCall) -> ProcessView:
    pid = call.require_process(call.path["pid"])
    return process_view(call, call.kernel.get_process(await restart_process(call.kernel, pid)))


async def send_message(call: HttpCall) -> Accepted:
    await call.kernel.send(call.require_process(call.path["pid"]), call.body.message)
    return Accepted()


# The tree of processes as compact rows: all of them once, and then those that changed.

_BATCH_ROWS: Final = 500  # after which other work gets its turn


class TreeQuery(RequestQuery):
    """`since` is the `mark` of an earlier answer; `ended` also shows processes that have ended."""

    since: str = ""
    ended: bool = False


class TreeView(msgspec.Struct, kw_only=True):
    """Rows in the order of `columns`, parents before their children. With `whole` they are all of them; otherwise they
    replace or add to those of the answer before, and `gone` has the pids of those that ended."""

    mark: str
    whole: bool
    columns: tuple[str, ...]
    rows: list[Any]
    gone: list[str]


async def get_tree_rows(call: HttpCall) -> TreeView:
    tree, query = call.parts.get_shared(LiveTree), call.query
    mark = tree.mark
    changes = tree.since(query.since, call.caller) if query.since and not query.ended else None
    if changes is not None:
        return TreeView(mark=mark, whole=False, columns=ProcessRow._fields, rows=list(changes[0]), gone=changes[1])
    rows: list[Any] = []
    for row in tree.rows(call.caller, ended=query.ended):
        rows.append(row)
        if len(rows) % _BATCH_ROWS == 0:
            await asyncio.sleep(0)
    return TreeView(mark=mark, whole=True, columns=ProcessRow._fields, rows=rows, gone=[])


ENDPOINTS: Final = (
    Endpoint(
        "processes.list",
        "GET",
        "/api/processes",
        "The processes, the oldest first",
        list_processes,
        query=ProcessQuery,
        answer=ProcessPage,
    ),
    Endpoint(
        "processes.get", "GET", "/api/processes/{pid}", "One process", get_process, answer=ProcessView, statuses=(404,)
    ),
    Endpoint(
        "processes.delete",
        "DELETE",
        "/api/processes/{pid}",
        "End a process and those that it started",
        terminate,
        answer=ProcessView,
        statuses=(404, 409),
    ),
    Endpoint(
        "processes.terminate",
        "POST",
        "/api/processes/{pid}/terminate",
        "End a process, with a reason",
        terminate,
        body=TerminateBody,
        answer=ProcessView,
        statuses=(404, 409),
        about="Without `force` a process that runs is not ended (409).",
    ),
    Endpoint(
        "processes.restart",
        "POST",
        "/api/processes/{pid}/restart",
        "Have its supervisor stop a process and start it again",
        restart,
        answer=ProcessView,
        statuses=(404, 409),
        about="The answer is the process that was started, with a pid of its own unless a guard stands for it. It does "
        "not count as a restart after a failure.",
    ),
    Endpoint(
        "processes.tree",
        "GET",
        "/api/processes/{pid}/tree",
        "A process and those below it",
        get_tree,
        answer=ProcessTree,
        statuses=(404,),
    ),
    Endpoint(
        "processes.send",
        "POST",
        "/api/processes/{pid}/messages",
        "Put a message into the mailbox of a process",
        send_message,
        body=MessageBody,
        answer=Accepted,
        status=202,
        statuses=(404, 409),
    ),
    Endpoint(
        "processes.rows",
        "GET",
        "/api/tree",
        "The tree of processes as compact rows, or what changed in it",
        get_tree_rows,
        query=TreeQuery,
        answer=TreeView,
    ),
)


# Starting a process again on request, through the supervisor that looks after it.


class RestartTarget(NamedTuple):
    """The supervisor of a process, the id under which it has it, and why it does not start it again ("" if it does)."""

    supervisor: str
    child_id: str
    refusal: str


def why_no_restart(kernel: Kernel, pid: str) -> str:
    """Return why a process cannot be restarted; "" where it can."""
    child = _child(kernel, pid)
    return "No supervisor looks after this process" if child is None else child.refusal


async def restart_process(kernel: Kernel, pid: str) -> str:
    """Restart a process; gives the pid that it has from now on. InvalidTransition where that cannot be."""
    child = _child(kernel, pid)
    refusal = "no supervisor looks after it" if child is None else child.refusal
    if child is None or refusal:
        raise InvalidTransition(f"process {pid} cannot be restarted: {refusal}", pid=pid)
    started = await kernel.supervisors.get(child.supervisor).replace_child(child.child_id)
    return pid if child.supervisor == pid else started.pid


def _child(kernel: Kernel, pid: str) -> RestartTarget | None:
    process = kernel.processes.get(pid)
    if process is None or not process.alive:
        return None
    plans, tables = kernel.supervisors.plans, kernel.supervisors.tables
    own = plans.get(pid)
    if own is not None and own.guards:
        return RestartTarget(pid, tables[pid].rows[0].spec.id, "") if tables[pid].rows else None
    parent = process.parent
    plan = None if parent is None else plans.get(parent.pid)
    if parent is None or plan is None:
        return None
    row = next((row for row in tables[parent.pid].rows if row.pid == pid), None)
    if row is None:
        return None
    is_kept = plan.template is None and row.spec.restart != "temporary"
    return RestartTarget(parent.pid, row.spec.id, "" if is_kept else "Its supervisor never starts it again")
