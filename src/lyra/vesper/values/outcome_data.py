"""An outcome as plain data that a journal keeps, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyra.vesper.values.outcome import NodeFailure, Outcome
from lyra.vesper.values.tagged import from_json, to_json


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    failure = outcome.error
    told = None if failure is None else [failure.code, failure.message, failure.phase, to_json(failure.fields)]
    return {
        "status": outcome.status,
        "outputs": to_json(outcome.outputs),
        "error": told,
        "path": outcome.path,
        "unverifiable": list(outcome.unverifiable),
    }


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    told = data["error"]
    failure = None if told is None else NodeFailure(told[0], told[1], told[2], from_json(told[3]))
    return Outcome(data["status"], from_json(data["outputs"]), failure, data["path"], tuple(data["unverifiable"]))


def failed(code: str, message: str, *, phase: str = "flow") -> Outcome:
    """The outcome of an execution that was refused before any path ran."""
    return Outcome("error", error=NodeFailure(code, message, phase, {"error_code": code, "message": message}))
