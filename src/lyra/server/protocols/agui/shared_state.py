"""The state that a front end and the tools of an agent share: the blackboard of the thread's group.

The thread's process is the only member of its own group, made when there is something to share. A tool of the
agent reads and writes it by `kernel.groups`; changes come to the front end as JSON patches. A key that the front end
leaves out stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError
from lyra.server.protocols.agui.input import agui_types
from lyra.server.protocols.agui.messages import as_json

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

STATE_KEYS_MAX: Final = 1_000
STATE_CHARS_MAX: Final = 1_000_000


def state_group(pid: str) -> str:
    """Return the name of the group of a thread."""
    return f"state.{pid}"


class SharedState:
    """The state of one thread as one run tells it."""

    __slots__ = ("_kernel", "_name", "_pid", "_told")

    def __init__(self, kernel: Kernel, pid: str) -> None:
        self._kernel = kernel
        self._pid = pid
        self._name = state_group(pid)
        self._told: dict[str, Any] = {}

    def check(self, state: dict[str, Any]) -> None:
        """Refuse a state that could not be written, before anything else of its run is done."""
        board = self._board()
        changed = {key: value for key, value in state.items() if key not in board or board[key] != value}
        for key in changed:
            if not 0 < len(key) <= NAME_LENGTH_MAX or not key.isprintable():
                raise ConfigError(f"a key of the state is 1 to {NAME_LENGTH_MAX} printable characters", key="state")
        whole = {**board, **changed}
        if changed and (len(whole) > STATE_KEYS_MAX or len(as_json(whole)) > STATE_CHARS_MAX):
            raise ConfigError(
                f"the state of a thread has at most {STATE_KEYS_MAX} keys and {STATE_CHARS_MAX} characters of JSON",
                key="state",
            )

    async def take(self, state: dict[str, Any]) -> str:
        """Write what the front end has changed; gives the changes as a text for the model, "" for none. The run begins
        with the state as it is then."""
        board = self._board()
        changed = {key: value for key, value in state.items() if key not in board or board[key] != value}
        self._told = {**board, **changed}
        if not changed:
            return ""
        groups = self._kernel.groups
        await groups.create(self._name, exist_ok=True)
        groups.join(self._name, self._pid)
        for key, value in changed.items():
            await groups.bb_set(self._name, key, value)
        return f"state set by the user's front end: {as_json(changed)}"

    def snapshot(self) -> list[Any]:
        """STATE_SNAPSHOT of the state at the beginning, where there is one."""
        return [agui_types().StateSnapshotEvent(snapshot=dict(self._told))] if self._told else []

    def changes(self) -> list[Any]:
        """STATE_DELTA with what has changed since the front end was told."""
        board, told = self._board(), self._told
        patch: list[dict[str, Any]] = [
            {"op": "replace" if key in told else "add", "path": _pointer(key), "value": value}
            for key, value in board.items()
            if key not in told or told[key] != value
        ]
        patch += [{"op": "remove", "path": _pointer(key)} for key in told if key not in board]
        if not patch:
            return []
        self._told = board
        if not told:
            return [agui_types().StateSnapshotEvent(snapshot=dict(board))]
        return [agui_types().StateDeltaEvent(delta=patch)]

    def _board(self) -> dict[str, Any]:
        if self._name not in self._kernel.groups.state.groups:
            return {}
        return self._kernel.groups.bb_snapshot(self._name)


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
