"""StoredAgent: the conversation of an agent process as its store has it, read without running anything.

For lists, exports and copies of conversations. The store may be open in another program at the same time. Next:
`unfinished`, the turn that the journal ends in the middle of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lyra.agents.session.session import Metrics
from lyra.agents.turn.loop import REVISE, parse_message
from lyra.agents.turn.unfinished import UnfinishedTurn, turn_in
from lyra.core import codec
from lyra.core.message import Message
from lyra.errors import ProcessError
from lyra.kernel.journal.history import Fold
from lyra.kernel.kernel import Kernel
from lyra.store.ended import load_all

if TYPE_CHECKING:
    from lyra.kernel.base.subsystem import State
    from lyra.kernel.journal.history import Entry, ProcessState
    from lyra.store.protocol import Store


class StoredAgent(NamedTuple):
    messages: tuple[Message, ...]
    metrics: Metrics
    unfinished: UnfinishedTurn | None


def read_agent(store: Store, pid: str, states: Iterable[State] = ()) -> StoredAgent:
    """The conversation of one process; `states` are filled with the facts that the layers above keep in the store."""
    snapshot = load_all(store)
    fold = Fold.load(snapshot.seq, snapshot.states, [*(type(state)() for state in Kernel().states.values()), *states])
    fold.add_all(store.read(after=snapshot.seq))
    process = fold.processes.get(pid)
    if process is None:
        raise ProcessError(f"{store.location} has no process {pid}", pid=pid)
    return _conversation(process, store)


def _conversation(process: ProcessState, store: Store) -> StoredAgent:
    messages: list[Message] = []
    metrics = Metrics()

    def value(entry: Entry) -> Any:
        return codec.decode(store.get_blob(entry.blob) if entry.blob else bytes(entry.value))

    def take(finished: Any) -> Metrics:
        messages.extend(Message.from_data(message) for message in finished["messages"])
        return msgspec.convert(finished["metrics"], Metrics)

    restored = store.get_blob(process.restored_blob) if process.restored_blob else bytes(process.restored)
    if codec.decode(restored) is not None:
        metrics = take(codec.decode(restored))
    for _, entry in sorted((key, entry) for key, entry in process.effects.items() if isinstance(key, int)):
        if entry.kind == "passage" and entry.name == "turn":
            metrics = take(value(entry))
        elif entry.kind == "receive":
            content = parse_message(value(entry))[1]
            if isinstance(content, dict) and REVISE in content:
                del messages[int(content[REVISE]["keep"]) :]
                messages += [Message.from_data(message) for message in content[REVISE]["add"]]
    return StoredAgent(tuple(messages), metrics, turn_in(process.effects, store.get_blob, process.first_branch))
