"""What a runtime keeps secret: which values of an execution are sensitive, and the key that seals them.

A node is private where an input or output of it is sensitive, or where a caller hands it a sensitive value. Its orders,
effects and outcomes are sealed in the journal, and its errors are shown without the values. The key comes from the
user's key file; a runtime whose store is memory has one of its own. Nodes without sensitive fields cost nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core.ids import random_key
from lyra.errors import ConfigError
from lyra.store.signature import load_signer
from lyra.vesper.check.derived import find_derived_fields, find_hidden_names, list_hidden_parameters, sensitive_inputs
from lyra.vesper.direct.coercion import Misfit, reader
from lyra.vesper.effects.sealing import PrivateEffects, Sealer
from lyra.vesper.values.json_values import json_shape, to_json
from lyra.vesper.values.redaction import REDACTED, Redaction
from lyra.vesper.values.types import Array, MapType, RecordType, SetType, ValueType, without_null

if TYPE_CHECKING:
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.values.outcome import Outcome


def redaction_of(program: NodeProgram, inputs: Mapping[str, Any], hidden: Collection[str] = ()) -> Redaction:
    """Return the redaction of an execution's sensitive inputs, as they are given and as the node reads them. Inputs
    that the node does not have are hidden with them."""
    names = sensitive_inputs(program, hidden)
    if not names:
        return Redaction((), find_hidden_names(program))
    kinds = {entry.name: entry.type for entry in program.inputs}
    values: list[Any] = []
    for name, value in inputs.items():
        if name not in kinds:
            values.append(value)
        elif name in names:
            values.extend(_forms(kinds[name], value))
    return Redaction(values, find_hidden_names(program, hidden))


def _forms(kind: ValueType, value: Any) -> list[Any]:
    """Return a sensitive value as it is given and, where it fits its type, as the node reads it."""
    try:
        return [_without_names(kind, value), _without_names(kind, reader(kind)(value))]
    except (Misfit, RecursionError):
        return [value]


def _without_names(kind: ValueType, value: Any) -> Any:
    """Return the value, of its records the values only: names of fields stand in the node and are no secret."""
    match without_null(kind):
        case RecordType() as record if isinstance(value, Mapping):
            kinds = {field.name: field.type for field in record.fields}
            return [_without_names(kinds[name], item) if name in kinds else item for name, item in value.items()]
        case Array() | SetType() as many if isinstance(value, list | set | frozenset):
            return [_without_names(many.item, item) for item in value]
        case MapType() as pairs if isinstance(value, Mapping):
            return [[name, _without_names(pairs.value, item)] for name, item in value.items()]
    return value


def redact_fields(
    program: NodeProgram, values: Mapping[str, Any], redaction: Redaction, hidden: Collection[str] = ()
) -> dict[str, Any]:
    """Return inputs or outputs without their sensitive values, as they may be kept in plain text."""
    declared = (*program.success, *program.error)
    names = redaction.names | find_hidden_names(program, hidden)
    public = {entry.name for entry in program.inputs} | {entry.name for entry in declared}
    return {
        (name if name in public else redaction.text(str(name))): REDACTED
        if name in names
        else to_json(redaction.value(value))
        for name, value in values.items()
    }


def readable_inputs(program: NodeProgram, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs that a test found, as a person may see them."""
    names = sensitive_inputs(program)
    return {name: REDACTED if name in names else json_shape(value) for name, value in inputs.items()}


def user_of(inputs: Mapping[str, Any], ambient: Mapping[str, Any]) -> str:
    """Return the user of an execution: the input `user_id`, else `user.id` of the context, else `anonymous`."""
    user = ambient.get("user")
    known = inputs.get("user_id") or (user.get("id") if isinstance(user, Mapping) else None)
    return str(known)[:200] if known else "anonymous"


def redact_differences(
    program: NodeProgram, differences: Iterable[Mapping[str, Any]], redaction: Redaction
) -> list[dict[str, Any]]:
    """Return differences of two paths without sensitive values; of what is hidden as a whole only its place is kept."""
    secret = redaction.names
    asking = list_hidden_parameters(program, secret).keys()
    rows = []
    for difference in differences:
        row = {key: redaction.value(item) for key, item in difference.items()}
        if (secret | asking) & set(re.findall(r"\w+", str(difference["path"]))):
            row |= {"python": REDACTED, "direct": REDACTED}
        rows.append(row)
    return rows


def redact_outcome(
    program: NodeProgram, inputs: Mapping[str, Any], outcome: Outcome, hidden: Collection[str] = ()
) -> Outcome:
    """Return the outcome whose error, if there is one, tells no sensitive value."""
    failure = outcome.error
    if failure is None or not isinstance(inputs, Mapping):
        return outcome
    secret = {entry.name for entry in program.error if entry.sensitive}
    if not sensitive_inputs(program, hidden) and not secret:
        return outcome
    redaction = redaction_of(program, inputs, hidden)
    secret |= find_derived_fields(program, redaction.names, failure)
    fields = {name: REDACTED if name in secret else redaction.value(value) for name, value in failure.fields.items()}
    message = REDACTED if "message" in secret else redaction.text(failure.message)
    shown = msgspec.structs.replace(failure, message=message, fields=fields)
    return msgspec.structs.replace(outcome, error=shown)


class Privacy:
    """See the module."""

    def __init__(self, *, is_durable: bool) -> None:
        self._is_durable = is_durable
        self._sealer: Sealer | None = None

    @property
    def sealer(self) -> Sealer:
        if self._sealer is None:
            signer = load_signer() if self._is_durable else None
            if signer is None and self._is_durable:
                raise ConfigError(
                    "a node with sensitive values needs the user's key, and store.key cannot be made",
                    hint="name a folder that can be written with XDG_CONFIG_HOME, or use a store in memory",
                    key="store.key",
                )
            self._sealer = Sealer(random_key() if signer is None else signer.derive(b"vesper sealing"))
        return self._sealer

    def is_private(self, program: NodeProgram, hidden: Collection[str] = ()) -> bool:
        outputs = (*program.success, *program.error)
        return (
            bool(hidden)
            or any(entry.sensitive for entry in program.inputs)
            or any(entry.sensitive for entry in outputs)
        )

    def effects(
        self, program: NodeProgram, inputs: Mapping[str, Any], hidden: Collection[str]
    ) -> PrivateEffects | None:
        """Return how the effects of an execution are kept; None where the node is not private."""
        if not self.is_private(program, hidden):
            return None
        redaction = redaction_of(program, inputs, hidden)
        return PrivateEffects(redaction, self.sealer, list_hidden_parameters(program, redaction.names))
