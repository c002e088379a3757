"""A milestone: a finished stretch of a program, journaled as one row with its outcome.

A replay skips the stretch: it takes the outcome and makes none of the calls in between, so that part of the program may
have changed since. The answers stay in the journal until the next checkpoint. A stretch that is not finished has no
row, and is replayed call by call like everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lyra.core import codec
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.kernel.journal import rows
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import take_entry

_FORM: Final = "passage"  # the word in the journal
_MARK: Final = 8  # bytes of a number in a milestone's hash: the key where it begins, the branches when it ends


async def replayed_milestone(process: Process, name: str) -> Any:
    """The outcome of the stretch that begins here, if the journal has its end; the program is moved behind it then."""
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
    """Drop the rest of the journal's answers: the stretch that they belong to was given up and is not gone on with.

    What it has begun is neither repeated nor asked about, and the processes that it started are stopped. The program
    goes on behind the last of the calls, so that no key is used twice.
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
    """Whether the journal of a process that comes back ends inside a stretch: a message came after the last one."""
    last = {"receive": -1, _FORM: -1}
    for key, entry in (process.replay or {}).items():
        if isinstance(key, int) and (entry.kind == "receive" or (entry.kind == _FORM and entry.name == name)):
            last[entry.kind] = max(last[entry.kind], key)
    return last["receive"] > last[_FORM]


def _within(key: rows.Key, last: int, branches: int) -> bool:
    """Whether an answer lies before the end of a stretch: a number, a branch's path, or what was said of a doubt."""
    if isinstance(key, int):
        return key <= last
    head = key.removeprefix("doubt:").partition("/")
    return int(head[0]) < branches if head[1] else int(head[0]) <= last
