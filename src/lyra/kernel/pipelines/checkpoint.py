"""A checkpoint: the whole session of a pipeline as plain data, to be kept anywhere and resumed from under any pid.

What a caller hands back may have been changed: every part is read as if it came from outside. Fields beside the session
win, because those are the ones that users change. The questions of its stages are asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.errors import ConfigError
from lyra.kernel.pipelines.session import session_data, session_of

if TYPE_CHECKING:
    from lyra.core.envelope import Envelope
    from lyra.kernel.pipelines.session import Session


_VERSION: Final = "1.0"
_BESIDE: Final = ("envelope", "edge_traversals", "stage_visits")  # fields of a session that stand beside it, too


def checkpoint_of(session: Session) -> dict[str, Any]:
    data = session_data(session)
    return {"version": _VERSION, "session": data, **{name: data[name] for name in _BESIDE}}


def check_version(checkpoint: Any) -> None:
    """Raise ConfigError where this is no checkpoint that this version can read."""
    if not isinstance(checkpoint, Mapping) or checkpoint.get("version") != _VERSION:
        raise ConfigError(f"not a checkpoint of version {_VERSION}", key="version")


def session_in(checkpoint: Mapping[str, Any]) -> tuple[Any, Envelope]:
    """The data of its session, to be written as a row, and the envelope in it."""
    kept = checkpoint.get("session")
    if isinstance(kept, Mapping):
        kept = {**kept, **{name: checkpoint[name] for name in _BESIDE if name in checkpoint}}
        kept.update({"waiting": _unasked(kept["waiting"])} if "waiting" in kept else {})
    try:
        return kept, session_of(kept).envelope
    except msgspec.ValidationError as error:
        raise ConfigError(f"not a checkpoint: {error}", key="session") from None


def _unasked(waiting: Any) -> Any:
    """The questions of a checkpoint's stages without their ids, so that the kernel asks them again."""
    if not isinstance(waiting, list):
        return waiting
    return [
        {
            **question,
            "id": "",
            "interrupt": {name: part for name, part in question["interrupt"].items() if name != "id"},
        }
        if isinstance(question, Mapping) and question.get("token") and isinstance(question.get("interrupt"), Mapping)
        else question
        for question in waiting
    ]
