"""An envelope for what a caller gave: text, a mapping of fields, or an envelope as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.checking.check import known_keys, sendable_text
from lyra.core.envelope import ANONYMOUS, Envelope
from lyra.errors import ConfigError, Denied

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.workers.lifecycle import LifecycleManager


_OWNED: Final = ("request_id", "user_id", "session_id")


def with_ids(envelope: Envelope, given: Mapping[str, str]) -> Envelope:
    """The envelope with the ids that a caller gives: its own where it has none, an error where it has others."""
    ids = {name: sendable_text(value, name) for name, value in given.items() if value}
    if not ids:
        return envelope
    if ids.get("user_id") and envelope.user_id not in (ANONYMOUS, ids["user_id"]):
        raise Denied(
            f"envelope {envelope.envelope_id} is not {ids['user_id']}'s", envelope_id=envelope.envelope_id, **ids
        )
    return msgspec.structs.replace(envelope, **ids)


def envelope_of(
    core: Core[Any],
    lifecycle: LifecycleManager,
    value: Envelope | Mapping[str, Any] | str | None,
    pid: str = "",
) -> Envelope:
    """An envelope as it is; text and mappings as a new one, with the ids of the pid's entry where they say none."""
    owner = lifecycle.state.entries.get(pid)
    if isinstance(value, Envelope):
        if owner is not None and owner.user_id and value.user_id == ANONYMOUS:
            return msgspec.structs.replace(value, user_id=owner.user_id)
        return value
    if isinstance(value, str):
        value = {"raw_input": str(value)}  # an agent's Reply is text, too
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"an envelope is a mapping of fields, not {type(value).__name__}", key="envelope")
    fields = dict(value or {})
    known_keys(fields, Envelope.__struct_fields__, "an envelope")
    for name in _OWNED if owner is not None and not owner.pipeline else ():
        if not fields.get(name) and getattr(owner, name):
            fields[name] = getattr(owner, name)
    return Envelope.create(core.entropy, now=core.now(), **fields)
