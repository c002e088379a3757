"""`lyra store adopt`: list the rights in a store that is not signed with this user's key, and sign it.

What is listed is read at one moment, and only that is signed: a store that changes before the answer is refused. Keys
of the gateway, hooks and webhooks in it are those of its maker: the transaction that signs the store ends them, unless
the person keeps them (`--keep-keys`). The durable runs of Vega programs in the same file are listed and signed with it.
`lyra.store.standing` says what signing is for; this module reads, shows and asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from lyra.cli.render import document, note, printable
from lyra.core.clock import SystemClock
from lyra.core.secrets.visible import visible
from lyra.errors import ApprovalRefused, ConfigError
from lyra.store.signing import SigningStore, StoreContents
from lyra.store.standing import StoreStanding, adopt, standing_of

if TYPE_CHECKING:
    from lyra.kernel.journal.history import Fold
    from lyra.kernel.stored_rights import ProcessRights, StoredRights

_REVOKED: Final = "revoked"  # why a process ends, as with `lyra keys revoke`


class ListedStore(NamedTuple):
    """A store or a run in its file, with what a person is shown of it."""

    run: str  # "" for the store itself
    standing: StoreStanding
    problems: list[str]  # what is not as it was signed
    rows: int
    facts: dict[str, Any]  # of a run: which program, from where
    rights: StoredRights
    fingerprint: bytes
    revoked: Sequence[str] = ()  # pids that end when the store is signed

    def to_data(self) -> dict[str, Any]:
        import msgspec

        return {
            "run": self.run or None,
            "standing": self.standing.name,
            "problems": self.problems,
            "rows": self.rows,
            **({"program": self.facts} if self.facts else {}),
            **msgspec.to_builtins(self.rights),
            "revoked": [*self.revoked],
        }


def list_store(store: SigningStore, run: str = "", *, keep_keys: bool = False) -> ListedStore:
    """Return what the store would give, as it is at this moment, and what ends when it is signed."""
    from lyra.kernel.stored_rights import contacts_in, rights_in

    standing = standing_of(store, make_key=True)
    contents = store.contents()
    fold, facts = _fold(contents, store)
    rights = rights_in(fold, store.get_blob)
    problems = _problems(store, standing)
    is_own = standing.name == "signed" and not problems
    revoked = [] if keep_keys or is_own else contacts_in(rights)
    return ListedStore(run, standing, problems, len(contents.rows), facts, rights, contents.fingerprint, revoked)


def _fold(contents: StoreContents, store: SigningStore) -> tuple[Fold, dict[str, Any]]:
    from lyra.kernel.journal.history import Fold
    from lyra.kernel.journal.snapshots import EndedStates
    from lyra.kernel.kernel import Kernel
    from lyra.vega.durable.record import RunState

    run = RunState()
    states = [*(type(state)() for state in Kernel().states.values()), run]
    fold = Fold.load(contents.snapshot.seq, contents.snapshot.states, states)
    fold.find_ended = EndedStates.load(store.get_blob, fold.segments).find
    fold.add_all(contents.rows)
    began = run.began or {}
    facts = {key: began[key] for key in ("file", "folder", "model", "hash") if began.get(key) is not None}
    return fold, facts | ({"hash": run.migrations[-1]["hash"]} if run.migrations else {})


def _problems(store: SigningStore, standing: StoreStanding) -> list[str]:
    """Return what does not fit its signature, in a store that is signed with this key."""
    if standing.name != "signed":
        return []
    store.sign_with(standing.signer)
    try:
        return store.check_signatures()
    finally:
        store.sign_with(None)


def adopt_listed(store: SigningStore, shown: ListedStore, lease_s: float) -> None:
    """Sign the store as it was shown, without what is revoked."""
    signer = shown.standing.signer
    if signer is None:
        raise ConfigError(
            "you have no key to sign with, and none could be made",
            hint="HOME or XDG_CONFIG_HOME has to name a folder that you may write to",
        )
    from lyra.kernel.journal import rows
    from lyra.kernel.journal.lease import acquire_at_once

    end = rows.encode(rows.Terminated(_REVOKED, stopped=True))
    ends = [(SystemClock().now(), pid, "process.terminated", end) for pid in shown.revoked]
    lease = acquire_at_once(store, "lyra store adopt", lease_s)
    try:
        adopt(store, signer, lease.epoch, shown.fingerprint, more=ends)
    finally:
        store.release(lease)


def show(location: str, stores: list[ListedStore], *, signed: bool | None = None) -> None:
    """One JSON document where `signed` is given, else lines for a person."""
    if signed is not None:
        document({"location": location, "signed": signed, "stores": [shown.to_data() for shown in stores]})
        return
    for shown in stores:
        name = f"run {shown.run}" if shown.run else location
        click.echo(printable(f"{name} is {shown.standing.words}"))
        for line in _lines(shown):
            # One line for each: a name with a line end in it must not look like a line of this list.
            click.echo(visible(f"  {line}".replace("\n", "\\n")))


def _lines(shown: ListedStore) -> Iterator[str]:
    yield from shown.problems
    for key, value in shown.facts.items():
        yield f"{key}: {value}"
    for process in shown.rights.processes:
        yield from _process_lines(process, is_revoked=process.pid in shown.revoked)
    if shown.rights.services:
        yield f"services: {', '.join(shown.rights.services)}"
    for pid, pipeline in shown.rights.pipelines.items():
        yield f"pipeline {pipeline} of {pid} goes on"
    for pid, state in shown.rights.entries.items():
        yield f"entry {pid}, which workers outside drive, is {state}"
    if not shown.rights.processes:
        yield "no process goes on when it is opened"


def _process_lines(process: ProcessRights, *, is_revoked: bool) -> Iterator[str]:
    from lyra.kernel.stored_rights import CONTACTS, grant_words

    name = f" ({process.name})" if process.name else ""
    yield f"{process.pid}{name} runs {process.program} and may do {grant_words(process.grant, process.parent)}"
    if process.program in CONTACTS:
        yield f"  {CONTACTS[process.program]}"
    if is_revoked:
        yield "  it is revoked when you sign the store (--keep-keys keeps it)"
    for child in process.children:
        yield f"  it starts {child.id}, {child.program}, which may do {grant_words(child.grant, process.pid)}"
    if process.text_from:
        yield f"  it has text from outside: {process.text_from}"
    if process.messages:
        yield f"  messages that wait for it: {process.messages}"
    for question in process.questions:
        yield f"  it asks: {question}"


def agree(location: str, *, yes: bool, can_ask: bool) -> None:
    """Return where a person agrees; ApprovalRefused otherwise."""
    if yes:
        return
    if not can_ask or not sys.stdin.isatty():
        note("nothing is signed: there is no one to ask, and --yes was not given")
    elif click.confirm("Sign it, so that these rights count?", default=False, err=True):
        return
    raise ApprovalRefused(f"{location} was not signed", hint="--yes signs it without a question")
