"""Envelopes without a pipeline: made, changed and copied by callers outside, and kept in the store.

    envelope = kernel.create_envelope({"raw_input": "tea"}, user_id="ann")
    kernel.update_envelope({"envelope_id": envelope.envelope_id, "outputs": {"taste": {"ok": True}}}, user_id="ann")

An update merges: a field that is not given keeps its value, and of a mapping (outputs, metadata, goals, stages) only
the keys that are given change. Ids and the owner never change, and an envelope that is over stays as it is. Envelopes
of pipelines are in their sessions (`pipelines.state`), not here. Callers get copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_keys, sendable_text
from lyra.core.envelope import ANONYMOUS, BoundsResult, Envelope
from lyra.core.limits import CLEANUP_ENVELOPES_S, ENVELOPES_MAX
from lyra.errors import ConfigError, Denied, InvalidTransition, NameTaken, NoSuchEnvelope, Overloaded
from lyra.kernel.base.acting import require
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.workers.quota import check_owner

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.workers.lifecycle import LifecycleManager


_TABLE: Final = "envelopes"  # the name of the rights to read and write them
_LASTING: Final = ("request_id", "session_id", "user_id", "created_at", "received_at")


class EnvelopeState:
    """The envelopes by id, the one that was changed longest ago first: a fold of three kinds of rows."""

    NAME: ClassVar[str] = "envelopes"
    KINDS: ClassVar[frozenset[str]] = frozenset({"envelope.created", "envelope.updated", "envelope.forgotten"})

    def __init__(self) -> None:
        self.envelopes: dict[str, Envelope] = {}
        self.changed_at: dict[str, float] = {}
        self.untrusted: set[str] = set()  # ids of those with text of a process that had read text from outside

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del pid
        envelope_id = data["id"]
        if kind == "envelope.forgotten":
            del self.envelopes[envelope_id], self.changed_at[envelope_id]
            self.untrusted.discard(envelope_id)
            return
        if kind == "envelope.created":
            envelope = Envelope.from_data(data["envelope"])
        else:
            envelope = Envelope.from_data({**self.envelopes[envelope_id].to_data(), **data["fields"]})
        self.envelopes[envelope_id] = envelope
        self.changed_at.pop(envelope_id, None)
        self.changed_at[envelope_id] = float(data.get("at", time))
        if data.get("tainted"):
            self.untrusted.add(envelope_id)

    def dump(self) -> Any:
        return {
            "envelopes": [envelope.to_data() for envelope in self.envelopes.values()],
            "changed_at": self.changed_at,
            "untrusted": sorted(self.untrusted),
        }

    def load(self, data: Any) -> None:
        for kept in data["envelopes"]:
            envelope = Envelope.from_data(kept)
            self.envelopes[envelope.envelope_id] = envelope
        self.changed_at = dict(data["changed_at"])
        self.untrusted = set(data["untrusted"])


class EnvelopeTable(Subsystem):
    """`kernel.envelopes`."""

    def __init__(self, core: Core[Any], lifecycle: LifecycleManager) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self.state = EnvelopeState()

    def create(
        self,
        fields: Envelope | Mapping[str, Any] | str | None = None,
        *,
        user_id: str = "",
        request_id: str = "",
        session_id: str = "",
    ) -> Envelope:
        """Make and keep an envelope, from fields, from text (its `raw_input`) or as it is; one with the id of another
        is NameTaken."""
        self._may_write()
        self._lifecycle.raise_if_closing("envelope")
        envelope = envelope_of(self._core, self._lifecycle, fields)
        given = {"user_id": user_id, "request_id": request_id, "session_id": session_id}
        return self._keep(with_ids(Envelope.from_data(envelope.to_data()), given))

    def get(self, envelope_id: str, *, user_id: str | None = None) -> Envelope:
        require("db.read", _TABLE)
        envelope = self._find_owned(envelope_id, user_id)
        if envelope_id in self.state.untrusted:
            self._core.taint.mark_here("an envelope")
        return envelope.copy()

    def list_envelopes(self, *, user_id: str | None = None) -> list[Envelope]:
        """All, or those of a user, in the order in which they were made."""
        kept = self.state.envelopes.values()
        return [self.get(envelope.envelope_id) for envelope in kept if user_id in (None, envelope.user_id)]

    def update(self, changes: Envelope | Mapping[str, Any], *, user_id: str | None = None) -> Envelope:
        """Change the envelope whose `envelope_id` is among the changes; see the module for what an update does."""
        self._may_write()
        given = changes.to_data() if isinstance(changes, Envelope) else changes
        if not isinstance(given, Mapping):
            raise ConfigError(f"an update is a mapping of fields, not {type(given).__name__}", key="envelope")
        check_keys(given, Envelope.__struct_fields__, "an envelope")
        before = self._find_owned(given.get("envelope_id"), user_id)
        fields = _find_changes(before, given)
        if fields:
            if before.terminated:
                raise InvalidTransition(
                    f"envelope {before.envelope_id} is over", hint="clone_envelope makes another of it"
                )
            if fields.get("terminated") and "completed_at" not in fields:
                fields["completed_at"] = self._core.now()
            Envelope.from_data({**before.to_data(), **fields})  # raises for a value that does not fit
            self._write("envelope.updated", before.envelope_id, {"fields": codec.decode(codec.encode(fields))})
        return self.get(before.envelope_id)

    def clone(self, envelope: Envelope | Mapping[str, Any] | str, *, user_id: str | None = None) -> Envelope:
        """Keep a copy of an envelope under a new id: the same piece of work, which goes its own way from here."""
        self._may_write()
        source = self.get(_id_of(envelope), user_id=user_id)
        return self._keep(source.clone(f"env_{self._core.entropy.text(16)}"))

    def check_bounds(self, envelope: Envelope | Mapping[str, Any] | str, *, user_id: str | None = None) -> BoundsResult:
        """Tell whether the work may continue, and what is left: of the envelope with this id, or of one that is given
        whole."""
        if isinstance(envelope, str):
            return self.get(envelope, user_id=user_id).check_bounds()
        given = envelope if isinstance(envelope, Envelope) else envelope_of(self._core, self._lifecycle, envelope)
        if given.envelope_id in self.state.envelopes:
            self._find_owned(given.envelope_id, user_id)
        return given.check_bounds()

    def forget(self, envelope_id: str, *, user_id: str | None = None) -> None:
        self._may_write()
        self._find_owned(envelope_id, user_id)
        self._write("envelope.forgotten", envelope_id, {})

    def forget_older_than(self, age_s: float = CLEANUP_ENVELOPES_S) -> int:
        """Forget envelopes that were not changed for so long; gives how many."""
        before = self._core.now() - age_s
        idle = [envelope_id for envelope_id, moment in self.state.changed_at.items() if moment <= before]
        for envelope_id in idle:
            self._write("envelope.forgotten", envelope_id, {})
        return len(idle)

    def _may_write(self) -> None:
        self._core.raise_if_closed()
        require("db.write", _TABLE)

    def _keep(self, envelope: Envelope) -> Envelope:
        envelope_id = envelope.envelope_id
        if envelope_id in self.state.envelopes:
            raise NameTaken(f"there is an envelope {envelope_id} already", hint="update_envelope changes it")
        if len(self.state.envelopes) >= ENVELOPES_MAX:
            raise Overloaded(
                f"{ENVELOPES_MAX} envelopes are kept, the most there may be",
                hint="cleanup forgets old ones",
                limit=ENVELOPES_MAX,
            )
        self._write("envelope.created", envelope_id, {"envelope": codec.decode(codec.encode(envelope.to_data()))})
        return envelope.copy()

    def _write(self, kind: str, envelope_id: str, data: dict[str, Any]) -> None:
        row = {"id": envelope_id, **data, "at": self._core.now()}
        if self._core.taint.is_here:
            row["tainted"] = True
        self._core.fact(self.state, "", kind, row)

    def _find_owned(self, envelope_id: Any, user_id: str | None) -> Envelope:
        envelope = self.state.envelopes.get(envelope_id) if isinstance(envelope_id, str) else None
        if envelope is None:
            raise unknown_envelope(envelope_id)
        check_owner(envelope.user_id, user_id, f"envelope {envelope_id}")
        return envelope


def unknown_envelope(envelope_id: Any) -> NoSuchEnvelope:
    return NoSuchEnvelope(
        f"no envelope {envelope_id!r}", hint="create_envelope keeps one", envelope_id=str(envelope_id)
    )


def _id_of(envelope: Any) -> Any:
    if isinstance(envelope, Envelope):
        return envelope.envelope_id
    return envelope.get("envelope_id") if isinstance(envelope, Mapping) else envelope


def _find_changes(before: Envelope, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that an update changes, with mappings merged by key."""
    fields: dict[str, Any] = {}
    held = before.to_data()
    for name, value in given.items():
        plain = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        if isinstance(held[name], dict) and isinstance(plain, Mapping) and name != "interrupt":
            plain = {**held[name], **plain}
        if plain == held[name]:
            continue
        if name in _LASTING:
            raise ConfigError(f"the {name} of an envelope does not change", hint="leave it out", key=name)
        fields[name] = plain
    return fields


# An envelope for what a caller gave: text, a mapping of fields, or an envelope as it is.

_OWNED: Final = ("request_id", "user_id", "session_id")


def with_ids(envelope: Envelope, given: Mapping[str, str]) -> Envelope:
    """Return the envelope with the ids that a caller gives: its own where it has none, an error where it has others."""
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
    """Return an envelope as it is; text and mappings as a new one, with the ids of the pid's entry where they say
    none."""
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
    check_keys(fields, Envelope.__struct_fields__, "an envelope")
    for name in _OWNED if owner is not None and not owner.pipeline else ():
        if not fields.get(name) and getattr(owner, name):
            fields[name] = getattr(owner, name)
    return Envelope.create(core.entropy, now=core.now(), **fields)
