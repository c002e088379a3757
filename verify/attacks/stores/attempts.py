"""The table of attempts: each changes a store's file so that a process would get rights, an order or an answer."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core import codec
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import ProcessState
from lyra.store.protocol import Record
from lyra.store.signature import Signer
from verify.attacks.stores.editor import Editor, edited
from verify.attacks.stores.victim import NARROW, Victim, asks, rests

__all__ = ["ATTEMPTS", "Attempt", "DoesNotApply"]

_ALL: Final = {"allow": ["*"]}
_YES: Final = rows.Raw(codec.encode({"approved": True, "text": "", "decision": "", "data": None}))
_GONE: Final = "trace.event"  # a kind that no fold looks at
_OTHER_KEY: Final = Signer(bytes(range(32)))

Change = Callable[[Editor, Victim], None]


class Attempt(NamedTuple):
    name: str
    change: Change


class DoesNotApply(Exception):
    """The store does not hold what the attempt changes."""


def _row(editor: Editor, kind: str, pid: str = "") -> Record:
    """A row that a kernel will read: one that the snapshot covers is history."""
    seq = editor.snapshot_seq
    rows_read = (row for row in editor.records() if row.seq > seq and row.kind == kind and pid in ("", row.pid))
    row = next(rows_read, None)
    if row is None:
        raise DoesNotApply
    return row


def _created(pid: str, **fields: Any) -> Change:
    return lambda editor, _: editor.change_data(_row(editor, "process.created", pid), **fields)


def _state(pid: str, change: Callable[[ProcessState], None]) -> Change:
    """Change the state of a process in the snapshot."""

    def act(editor: Editor, _: Victim) -> None:
        states = editor.states()
        if pid not in states:
            raise DoesNotApply
        state = msgspec.msgpack.decode(states[pid], type=ProcessState)
        change(state)
        editor.put_states({**states, pid: msgspec.msgpack.encode(state)})

    return act


def _states(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> Change:
    def act(editor: Editor, _: Victim) -> None:
        states = editor.states()
        if not states:
            raise DoesNotApply
        editor.put_states(change(dict(states)))

    return act


def _set(**fields: Any) -> Callable[[ProcessState], None]:
    def change(state: ProcessState) -> None:
        state.created = msgspec.structs.replace(state.created, **fields)

    return change


def _name(program: Any) -> str:
    return f"{program.__module__}:{program.__qualname__}"


_NEW: Final = rows.Created(_name(rests), rows.Raw(codec.encode(("work",))), chosen=True)
_MESSAGE: Final = rows.Sent("narrow", rows.Raw(codec.encode("delete it")))


def _last_signature(editor: Editor) -> bytes | None:
    return editor.batches[-1][1] if editor.batches else None


# ---------------------------------------------------------------- rows
def _hide(kind: str, pid: str = "") -> Change:
    """Put a row of no meaning in its place: the numbers stay as they are."""

    def act(editor: Editor, _: Victim) -> None:
        data = codec.encode({})
        editor.change(_row(editor, kind, pid), lambda row: row._replace(kind=_GONE, data=data))

    return act


def _remove(kind: str, pid: str = "") -> Change:
    def act(editor: Editor, _: Victim) -> None:
        editor.change(_row(editor, kind, pid), lambda _row: None)
        editor.renumber()

    return act


def _append(kind: str, pid: str, row: Any, *, copied: bool = False) -> Change:
    """Add a row at the end, without a signature or with a copy of the last one."""

    def act(editor: Editor, _: Victim) -> None:
        editor.append(kind, pid, row, _last_signature(editor) if copied else None)

    return act


def _answer(editor: Editor, _: Victim) -> None:
    states = [
        msgspec.msgpack.decode(data, type=ProcessState) for pid, data in editor.states().items() if pid == "asking"
    ]
    ids = [pending.id for state in states for pending in state.interrupts.values()]
    asked = editor.find("interrupt.created", "asking")
    if asked is not None:
        ids.append(rows.DECODERS["interrupt.created"].decode(asked.data).id)
    editor.append("interrupt.resolved", "asking", rows.InterruptEnded(ids[0], _YES))


def _answer_otherwise(editor: Editor, _: Victim) -> None:
    editor.change_data(_row(editor, "interrupt.resolved", "answered"), response=_YES)


def _insert(editor: Editor, _: Victim) -> None:
    editor.insert(_row(editor, "process.created", "late"), "process.created", "evil", _NEW)


def _exchange_rights(editor: Editor, _: Victim) -> None:
    """The narrow process gets the row of the wide one, and the other way round."""
    narrow, wide = (_row(editor, "process.created", pid) for pid in ("narrow", "wide"))
    editor.change(narrow, lambda row: row._replace(data=wide.data))
    editor.change(wide, lambda row: row._replace(data=narrow.data))


def _exchange_batches(editor: Editor, _: Victim) -> None:
    seq = editor.snapshot_seq
    late = [index for index, (records, _) in enumerate(editor.batches) if records[0].seq > seq]
    if len(late) < 2:
        raise DoesNotApply
    first, second = late[0], late[-1]
    editor.batches[first], editor.batches[second] = editor.batches[second], editor.batches[first]
    editor.renumber()


def _exchange_signatures(editor: Editor, _: Victim) -> None:
    """Widen a grant, and give the batch the signature of another one."""
    editor.change_data(_row(editor, "process.created", "late"), grant=None)
    signatures = [signed for _, signed in editor.batches]
    editor.resign(lambda index, _: signatures[index - 1])


def _sign_with_zeros(editor: Editor, _: Victim) -> None:
    editor.change_data(_row(editor, "process.created", "late"), grant=None)
    editor.resign(lambda _, signed: bytes(len(signed or b"")))


def _begin_chapter(editor: Editor, _: Victim) -> None:
    """Let the changed batch look like the first of a chapter, linked to the batch before it."""
    changed = _row(editor, "process.created", "late")
    editor.change_data(changed, grant=None)
    signatures = [signed or b"" for _, signed in editor.batches]
    index = next(
        index for index, (records, _) in enumerate(editor.batches) if changed.seq in [row.seq for row in records]
    )
    editor.resign(lambda at, signed: signatures[at - 1][-16:] + (signed or b"")[-16:] if at == index else signed)


def _end_chapter(editor: Editor, _: Victim) -> None:
    """Take the beginnings of chapters away."""
    editor.change_data(_row(editor, "process.created", "late"), grant=None)
    editor.resign(lambda _, signed: (signed or b"")[-16:])


def _sign_with_another_key(editor: Editor, _: Victim) -> None:
    """Sign all of it with a key of one's own, and say so."""
    editor.change_data(_row(editor, "process.created", "late"), grant=None)
    editor.put_signature(_OTHER_KEY.key_id, *editor.signature()[1:])


def _from_another_store(editor: Editor, victim: Victim) -> None:
    """Batches of another store of the same user, with their signatures, from the first one on."""
    if editor.snapshot_seq:
        raise DoesNotApply
    with Editor(victim.other, victim.place.run) as other:
        editor.batches = [*other.batches, *editor.batches[len(other.batches) :]]
    editor.renumber()


def _whole_journal_of_another_store(editor: Editor, victim: Victim) -> None:
    with Editor(victim.other, victim.place.run) as other:
        editor.batches = list(other.batches)
        editor.put_states(other.states(), snapshot_seq=other.snapshot_seq)
        editor.put_signature(*other.signature())
    editor.renumber()


def _from_a_fork(editor: Editor, victim: Victim) -> None:
    """The last batch of another future of the same store, under the same number."""
    with Editor(victim.fork, victim.place.run) as fork:
        for index, (records, _) in enumerate(editor.batches):
            twin = [batch for batch in fork.batches if batch[0][0].seq == records[0].seq and batch[0] != records]
            if records[0].seq > editor.snapshot_seq and twin and len(twin[0][0]) == len(records):
                editor.batches[index] = twin[0]
                editor.renumber()
                return
    raise DoesNotApply


# ---------------------------------------------------------------- signatures taken away
def _strip_and_widen(editor: Editor, _: Victim) -> None:
    _widen_anywhere(editor)
    editor.strip()


def _widen_anywhere(editor: Editor) -> None:
    states = editor.states()
    if "narrow" in states:
        state = msgspec.msgpack.decode(states["narrow"], type=ProcessState)
        _set(grant=None)(state)
        editor.put_states({**states, "narrow": msgspec.msgpack.encode(state)})
    for row in list(editor.records()):
        if row.kind == "process.created" and row.pid in ("narrow", "late"):
            editor.change(row, lambda row: row._replace(data=edited(row.kind, row.data, {"grant": None})))


def _strip_and_rename(editor: Editor, victim: Victim) -> None:
    _strip_and_widen(editor, victim)
    editor.put_identity("another", 0)


def _strip_for_another_key(editor: Editor, victim: Victim) -> None:
    _strip_and_widen(editor, victim)
    editor.put_signature(_OTHER_KEY.key_id, 0, b"", b"")


def _make_old(editor: Editor, victim: Victim) -> None:
    """A file as a version before signatures would have left it."""
    _strip_and_widen(editor, victim)
    editor.write()
    for statement in (
        "ALTER TABLE {journal} DROP COLUMN signature",
        "DROP TABLE {signatures}",
        *(() if victim.place.run else ("DELETE FROM migrations WHERE number > 3", "PRAGMA user_version=3")),
    ):
        editor.ask(statement)


def _strip_the_last(editor: Editor, _: Victim) -> None:
    editor.change_data(_row(editor, "process.created", "late"), grant=None)
    last = len(editor.batches) - 1
    editor.resign(lambda index, signed: None if index == last else signed)


# ---------------------------------------------------------------- the file as a whole
def _another_file(editor: Editor, victim: Victim) -> None:
    """Another store that the same user signs, in the place of this one."""
    shutil.copy(victim.other, editor.path)


def _another_unsigned_file(editor: Editor, victim: Victim) -> None:
    copy = Path(f"{victim.scratch}.db")
    shutil.copy(victim.other, copy)
    with Editor(copy, victim.place.run) as other:
        other.strip()
        other.put_identity("another", 0)
    shutil.copy(copy, editor.path)


def _raw(*statements: str) -> Change:
    def act(editor: Editor, _: Victim) -> None:
        try:
            for statement in statements:
                editor.ask(statement)
        except sqlite3.OperationalError as error:
            raise DoesNotApply from error

    return act


def _skip_rows(editor: Editor, _: Victim) -> None:
    """Say that the snapshot covers the rows after it, so that none of them is read."""
    if not editor.states() or editor.last_seq == editor.snapshot_seq:
        raise DoesNotApply
    editor.put_states(editor.states(), snapshot_seq=editor.last_seq)


def _forget_snapshot(editor: Editor, _: Victim) -> None:
    """Have all rows read again, without what the snapshot says."""
    if not editor.states():
        raise DoesNotApply
    editor.put_states({}, snapshot_seq=0)


def _older_snapshot(editor: Editor, victim: Victim) -> None:
    """The states of an earlier snapshot under the signature of today's."""
    with Editor(victim.older, victim.place.run) as older:
        states = older.states()
    if not states or states == editor.states():
        raise DoesNotApply
    editor.put_states(states)


def _snapshot_of_a_fork(editor: Editor, victim: Victim) -> None:
    """The snapshot of another future, with its signature; the rows stay."""
    with Editor(victim.fork, victim.place.run) as fork:
        if not fork.states() or editor.last_seq == editor.snapshot_seq:
            raise DoesNotApply
        editor.put_states(fork.states(), snapshot_seq=fork.snapshot_seq)
        editor.put_signature(*fork.signature())


def _other_blob(editor: Editor, _: Victim) -> None:
    """Other arguments under the name of the real ones."""
    editor.connection.execute("UPDATE blobs SET data = ?", (codec.encode(("evil",)),))


def _marks_off(states: dict[str, bytes]) -> dict[str, bytes]:
    return {**states, "~labels": codec.encode({})} if "~labels" in states else states


def _copied_state(states: dict[str, bytes]) -> dict[str, bytes]:
    return {**states, "narrow": states["wide"]}


def _without(pid: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda states: {other: data for other, data in states.items() if other != pid}


def _end_undone(state: ProcessState) -> None:
    state.exit = None
    state.created = msgspec.structs.replace(state.created, grant=None)


def _answer_given(state: ProcessState) -> None:
    for pending in state.interrupts.values():
        if pending.key is not None:
            state.effects[pending.key].value = _YES
            state.effects[pending.key].done = True
    state.interrupts = {}


def _message_added(state: ProcessState) -> None:
    state.inbox.append((1, rows.Raw(codec.encode("delete everything")), "", ""))


_VIEW: Final = ("ALTER TABLE {snapshots} RENAME TO states", "CREATE VIEW {snapshots} AS SELECT * FROM states")

ATTEMPTS: Final[tuple[Attempt, ...]] = tuple(
    Attempt(name, change)
    for name, change in (
        ("a grant is widened", _created("narrow", grant=_ALL)),
        ("a grant of the newest rows is widened", _created("late", grant=_ALL)),
        ("a grant is taken out, so that the kernel's counts", _created("narrow", grant=None)),
        ("a grant of the newest rows is taken out", _created("late", grant=None)),
        ("a deny is taken out", _created("narrow", grant={"allow": NARROW["allow"]})),
        ("one right is added", _created("narrow", grant={**NARROW, "allow": [*NARROW["allow"], "process.exec"]})),
        ("a grant looks like one of an earlier version", _created("narrow", rights=0)),
        ("a process of another parent", _created("late", parent="wide", grant=None)),
        ("a child of no parent", lambda editor, _: _orphan(editor)),
        ("another program", _created("narrow", program=_name(asks))),
        ("other arguments", _created("narrow", args=rows.Raw(codec.encode(("evil",))))),
        ("a larger budget", _created("narrow", budget={"limits": {"usd": 1e6}})),
        ("no budget", _created("narrow", budget=None)),
        ("the name of another process", _created("narrow", name="boss")),
        ("a process stands for another", _created("late", guarded=True, parent="wide", grant=None)),
        ("the rights of two processes are exchanged", _exchange_rights),
        ("a process is added", _append("process.created", "evil", _NEW)),
        (
            "a process is added with a copied signature",
            _append("process.created", "evil", _NEW, copied=True),
        ),
        ("a process is added in the middle", _insert),
        ("a process is made twice", _append("process.created", "late", _NEW)),
        ("a mark is hidden", _hide("process.tainted")),
        ("a mark is removed", _remove("process.tainted")),
        ("a mark is taken off", _append("process.unlabelled", "marked", {})),
        ("an end is hidden", _hide("process.terminated", "over")),
        ("an end is removed", _remove("process.terminated", "over")),
        ("a question is answered", _answer),
        ("a no becomes a yes", _answer_otherwise),
        ("an answer is hidden", _hide("interrupt.resolved", "answered")),
        ("a question is hidden", _hide("interrupt.created", "asking")),
        (
            "a message is added",
            _append("message.sent", "wide", rows.Sent("narrow", rows.Raw(codec.encode("delete it")))),
        ),
        ("a message is changed", lambda editor, _: _change_message(editor)),
        ("a message is removed", _remove("message.sent")),
        ("a process ends", _append("process.terminated", "narrow", rows.Terminated("killed"))),
        ("a process saves a state", _append("program.checkpoint", "narrow", rows.Checkpointed(0))),
        ("a supervised child gets all rights", lambda editor, _: _change_plan(editor)),
        ("batches change places", _exchange_batches),
        ("signatures change places", _exchange_signatures),
        ("signatures of zeros", _sign_with_zeros),
        ("a false beginning of a chapter", _begin_chapter),
        ("chapters without beginnings", _end_chapter),
        ("the last batch loses its signature", _strip_the_last),
        ("the key of another", _sign_with_another_key),
        ("batches of another store", _from_another_store),
        ("the whole journal of another store", _whole_journal_of_another_store),
        ("a batch of another future of this store", _from_a_fork),
        ("all signatures are taken away", _strip_and_widen),
        ("all signatures are taken away, with another id", _strip_and_rename),
        ("all signatures are taken away, as if another key had signed", _strip_for_another_key),
        ("the store looks like one of an earlier version", _make_old),
        ("another store of the user is put in its place", _another_file),
        ("a store without signatures is put in its place", _another_unsigned_file),
        ("a trigger changes rows", _raw("CREATE TRIGGER t AFTER INSERT ON lease BEGIN DELETE FROM lease; END")),
        (
            "a view stands for a table",
            _raw('ALTER TABLE {snapshots} RENAME TO "s2"', 'CREATE VIEW {snapshots} AS SELECT * FROM "s2"'),
        ),
        ("the store's id is another", lambda editor, _: editor.put_identity("another", 0)),
        ("the store got its id later", lambda editor, _: editor.put_identity(*_later_identity(editor))),
        ("rows after the snapshot are skipped", _skip_rows),
        ("the snapshot is forgotten", _forget_snapshot),
        ("an older snapshot under this signature", _older_snapshot),
        ("the snapshot of another future of this store", _snapshot_of_a_fork),
        ("a grant in the snapshot is widened", _state("narrow", _set(grant=_ALL))),
        ("a grant in the snapshot is taken out", _state("narrow", _set(grant=None))),
        ("a deny in the snapshot is taken out", _state("narrow", _set(grant={"allow": NARROW["allow"]}))),
        ("another program in the snapshot", _state("narrow", _set(program=_name(asks)))),
        ("a larger budget in the snapshot", _state("narrow", _set(budget={"limits": {"usd": 1e6}}))),
        ("an end in the snapshot is undone", _state("over", _end_undone)),
        ("an answer in the snapshot is given", _state("asking", _answer_given)),
        ("a message in the snapshot is added", _state("narrow", _message_added)),
        ("marks in the snapshot are taken off", _states(_marks_off)),
        ("a state in the snapshot is that of another process", _states(_copied_state)),
        ("a process is missing in the snapshot", _states(_without("over"))),
        ("a process is added to the snapshot", _states(lambda states: {**states, "evil": states["wide"]})),
        ("the signature of the snapshot is of zeros", lambda editor, _: _zero_code(editor)),
        ("the snapshot is linked to another place", lambda editor, _: _other_link(editor)),
        ("a blob is another", _other_blob),
    )
)


def _orphan(editor: Editor) -> None:
    """A supervised child becomes a process of its own, with the rights of the kernel."""
    for row in editor.records():
        if row.kind == "process.created" and row.seq > editor.snapshot_seq:
            created = rows.DECODERS[row.kind].decode(row.data)
            if created.parent:
                editor.change_data(row, parent="", key=None, grant=None)
                return
    raise DoesNotApply


def _change_message(editor: Editor) -> None:
    row = _row(editor, "message.sent")
    editor.change_data(row, message=rows.Raw(codec.encode("delete everything")))


def _change_plan(editor: Editor) -> None:
    row = _row(editor, "process.created", "tree")
    (plan,) = codec.decode(bytes(rows.DECODERS[row.kind].decode(row.data).args))
    for child in plan["children"]:
        child["grant"] = None
    editor.change_data(row, args=rows.Raw(codec.encode((plan,))))


def _later_identity(editor: Editor) -> tuple[str, int]:
    ((name,),) = editor.ask("SELECT name FROM {identity}")
    return str(name), editor.last_seq


def _zero_code(editor: Editor) -> None:
    key_id, seq, link, code = editor.signature()
    editor.put_signature(key_id, seq, link, bytes(len(code)))


def _other_link(editor: Editor) -> None:
    key_id, seq, _, code = editor.signature()
    if not seq or editor.last_seq == seq:
        raise DoesNotApply
    editor.put_signature(key_id, seq, (editor.batches[-1][1] or b"")[-16:], code)
