"""The answers that the journal holds for a process that runs again: `process.replay`, by key.

After a restart a program runs from its beginning, and each of its calls asks here first (`take_entry`). A call that was
answered gets that answer, one that failed or was cut off ends as it did then (`raise_journaled`). A call that is not
the one in the journal is a Divergence: the program has changed, and its process stands still from then on (`Diverged`).
How a row becomes an entry is in `journal.history`.

A key is a number in the program itself and a path such as `0/3` inside parallel branches: it depends only on the
program's own structure, never on which of two branches was faster. A milestone is the end of a finished stretch: a
replay takes its outcome and makes none of the calls in between, so that part of the program may have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn

from lyra.core import codec
from lyra.core.effect import canonical_hash
from lyra.core.ids import ProcessRandom
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.core.naming import old_names, to_fixed_name
from lyra.errors import Divergence, ProcessError
from lyra.kernel.base.waiting import suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.process.cut_short import CUT_OFF
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from lyra.kernel.journal.history import Entry


class Diverged(dict[Any, Any]):
    """What a process remembers once it has diverged: only that. A program that catches the error gets it again."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__()
        self.error = Divergence(message, **fields)


def take_entry(
    process: Process,
    key: rows.Key,
    kind: str,
    name: str,
    digest: bytes,
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> Entry | None:
    """Return what the journal holds under this key, if it is the same request; a different one is a Divergence.

    An empty `name` is not compared: a message's receiver goes by the hash, since its name may be another process's now.
    `call` has the arguments that the digest was made of, where an earlier version may have journaled an old name.
    """
    assert process.replay is not None
    if isinstance(process.replay, Diverged):
        raise process.replay.error
    entry: Entry | None = process.replay.pop(key, None)
    if not process.replay:
        process.replay = None
    if entry is None:
        return None
    if (
        entry.kind != kind or (name and entry.name != name) or (entry.hash and digest and entry.hash != digest)
    ) and not (call is not None and entry.kind == kind and _is_under_old_names(entry, name, digest, *call)):
        asked = f"{kind} {name}".strip()
        held = f"{entry.kind} {entry.name}".strip()
        detail = " with other arguments" if asked == held else ""
        process.replay = Diverged(
            f"process {process.pid} asked for {asked}{detail} where its journal has {held}",
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=held,
            actual=asked,
            at=str(key),
            pid=process.pid,
        )
        raise process.replay.error
    return entry


def _is_under_old_names(entry: Entry, name: str, digest: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an entry is the same request, journaled when Lyra's own functions had other names."""
    if to_fixed_name(entry.name) != to_fixed_name(name):
        return False
    if not entry.hash or entry.hash == digest:
        return True
    before = tuple(arg.under_old_names() if hasattr(arg, "under_old_names") else arg for arg in args)
    return any(entry.hash == canonical_hash(old, before, kwargs) for old in (*old_names(name), name))


def drop_doubt(process: Process, key: rows.Key) -> None:
    """Drop the answer about an effect in doubt that is finished: the replay does not ask for it."""
    replay, doubt = process.replay, f"doubt:{key}"
    if replay is not None and doubt in replay:
        del replay[doubt]
        if not replay:
            process.replay = None


async def raise_journaled(process: Process, error: dict[str, Any]) -> NoReturn:
    """On replay: raise what was journaled; where the call was cancelled then, wait to be cancelled now.

    A call whose caller gave up is not cancelled a second time, and one that ran out of time has waited already: both
    end here, as they did then.
    """
    code = error.get("code")
    if code in CUT_OFF:
        raise asyncio.CancelledError(CUT_OFF[code])
    if code == "cancelled":
        await suspend(process, [])
    raise error_from_row(error)


def as_replayed(live: BaseException, again: BaseException) -> BaseException:
    """Return the error itself if a replay makes the same of it (class, arguments, attributes), else what a replay
    makes."""
    if isinstance(live, BaseExceptionGroup):
        return again
    same = type(live) is type(again) and live.args == again.args
    return live if same and public_attributes(live) == public_attributes(again) else again


def public_attributes(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in getattr(error, "__dict__", {}).items() if not name.startswith("_")}


# ---------------------------------------------------------------- call keys


class Branch:
    """One parallel line of a program: the task it runs in and its own count of keys."""

    __slots__ = ("branches", "keys", "path", "rng", "task")

    def __init__(self, task: object, path: str) -> None:
        self.task = task
        self.path = path
        self.rng: ProcessRandom | None = None
        self.keys = 0
        self.branches = 0


_branch: ContextVar[tuple[Process, Branch] | None] = ContextVar("lyra_branch", default=None)


def next_key(process: Process) -> rows.Key:
    """Return the key of the next call: a number in the program itself, a path in a branch of it."""
    if process.stepping:
        key = process.keys
        process.keys = key + 1
        return key
    branch = current_branch(process)
    key_in_branch = branch.keys
    branch.keys += 1
    return f"{branch.path}{key_in_branch}"


def current_branch(process: Process) -> Branch:
    """Return the branch this task is; a task met for the first time becomes a child of the branch that made it."""
    task = asyncio.current_task()
    if task is None or process.exit is not None or process.coroutine is None:
        raise ProcessError(
            f"ctx of process {process.pid} was used outside its program",
            hint="use it only inside the program",
            pid=process.pid,
        )
    held = _branch.get()
    outer = held[1] if held is not None and held[0] is process else None
    if outer is not None and outer.task is task:
        return outer
    # Numbered in the order made, which the program alone decides; the contextvar was copied with the task.
    parent: Process | Branch = outer if outer is not None else process
    path = f"{outer.path if outer is not None else ''}{parent.branches}/"
    parent.branches += 1
    branch = Branch(task, path)
    if isinstance(task, asyncio.Task):
        process.core.branch_began(process)
    _branch.set((process, branch))
    return branch


def name_branch(process: Process, path: str) -> None:
    """Give the task that runs a branch of that path, for programs whose branches are not always made in one order."""
    task = asyncio.current_task()
    process.core.branch_began(process)
    _branch.set((process, Branch(task, path)))


def new_branch(process: Process) -> str:
    """Return the path of a new branch of the line that runs, for tasks that are made later (`name_branch`)."""
    line: Process | Branch = process if process.stepping else current_branch(process)
    path = f"{'' if isinstance(line, Process) else line.path}{line.branches}/"
    line.branches += 1
    return path


def after(key: rows.Key) -> rows.Key:
    """Return the key of the next call on the same line of the program."""
    if isinstance(key, int):
        return key + 1
    path, _, number = key.rpartition("/")
    return f"{path}/{int(number) + 1}"


def upcoming(process: Process) -> Entry | None:
    """Return the journal's next answer on this line of the program, if it has one; takes no key."""
    if process.replay is None:
        return None
    return process.replay.get(upcoming_key(process))


def upcoming_key(process: Process) -> rows.Key:
    """Return the key that the next effect on this line of the program will have; takes none."""
    branch = None if process.stepping else current_branch(process)
    return process.keys if branch is None else f"{branch.path}{branch.keys}"


def comes_next(process: Process, kind: str) -> bool:
    """Return whether the journal's next answer on this line of the program is of that kind."""
    entry = upcoming(process)
    return entry is not None and entry.kind == kind


# ---------------------------------------------------------------- milestones

_FORM: Final = "passage"  # the word in the journal
_MARK: Final = 8  # bytes of a number in a milestone's hash: the key where it begins, the branches when it ends


async def replay_milestone(process: Process, name: str) -> Any:
    """Return the outcome of the stretch that begins here, if the journal has its end; the program is moved behind it
    then."""
    replay = process.replay
    if not replay:
        return None
    begin = process.keys.to_bytes(_MARK, "big")
    for key, entry in replay.items():
        if entry.kind == _FORM and entry.name == name and entry.hash[:_MARK] == begin and isinstance(key, int):
            break
    else:
        return None
    outcome = codec.decode(await process.core.value_of(entry))
    branches = int.from_bytes(entry.hash[_MARK:], "big")
    for skipped in [call for call in replay if _within(call, key, branches)]:
        del replay[skipped]
    if not replay:
        process.replay = None
    process.keys = key + 1
    process.branches = branches
    process.rng = None
    return outcome


def steps_to_replay(process: Process) -> Iterator[tuple[str, Any]]:
    """Yield what a process that comes back has yet to take over from the journal, in order: the messages that it has
    received, as ("", message), and the stretches that it has finished, as (name, outcome)."""
    replay, journal = process.replay or {}, process.core.journal
    for key in sorted(key for key in replay if isinstance(key, int)):
        entry = replay[key]
        if not (entry.kind == _FORM or (entry.kind == "receive" and not entry.link)):
            continue
        if entry.blob and (journal is None or not journal.store.inline):  # only a writer beside the loop can read it
            return
        value = journal.store.get_blob(entry.blob) if entry.blob and journal is not None else bytes(entry.value)
        yield entry.name, codec.decode(value)


def skip_replay(process: Process) -> None:
    """Drop the rest of the journal's answers: the stretch that they belong to was given up and is not continued.

    What it has begun is neither repeated nor asked about, and the processes that it started are stopped. The program
    continues behind the last of the calls, so that no key is used twice.
    """
    replay, process.replay = process.replay, None
    core = process.core
    for key, entry in (replay or {}).items():
        head, _, rest = str(key).removeprefix("doubt:").partition("/")
        if rest:
            process.branches = max(process.branches, int(head) + 1)
        else:
            process.keys = max(process.keys, int(head) + 1)
        child = core.lookup(entry.link) if entry.kind == "spawn" else None
        if child is not None and child.exit is None:
            core.stop_tree(child, "killed")
    for dropped in core.subsystems.replay_dropped:
        dropped(process)


async def write_milestone(process: Process, name: str, begin: int, outcome: Any) -> None:
    """Journal the end of a stretch that began at a key. It needs no wait: later rows are behind it in the journal."""
    core = process.core
    journal = core.journal
    key = process.keys
    process.keys = key + 1
    if journal is None:
        return
    ends = begin.to_bytes(_MARK, "big") + process.branches.to_bytes(_MARK, "big")
    if process.replay is not None and take_entry(process, key, _FORM, name, ends) is not None:
        return
    data = codec.encode(outcome)
    blob = await core.calls.door.put_blob(name, data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
    row = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, name=name, hash=ends, form=_FORM)
    journal.write(process.pid, "effect.finished", rows.encode(row))
    process.rng = None  # a replay that skips it needs a new seed, so this execution takes one too


def is_unfinished(process: Process, name: str) -> bool:
    """Return whether the journal of a process that comes back ends inside a stretch: a message came after the last
    one."""
    last = {"receive": -1, _FORM: -1}
    for key, entry in (process.replay or {}).items():
        if isinstance(key, int) and (entry.kind == "receive" or (entry.kind == _FORM and entry.name == name)):
            last[entry.kind] = max(last[entry.kind], key)
    return last["receive"] > last[_FORM]


def _within(key: rows.Key, last: int, branches: int) -> bool:
    """Return whether an answer lies before the end of a stretch: a number, a branch's path, or what was said of a
    doubt."""
    if isinstance(key, int):
        return key <= last
    head = key.removeprefix("doubt:").partition("/")
    return int(head[0]) < branches if head[1] else int(head[0]) <= last
