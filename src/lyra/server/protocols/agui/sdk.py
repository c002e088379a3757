"""The types of the AG-UI protocol, from the official package, loaded at the first request.

Every event that is sent and every input that is read is one of these types, so that the package says what is valid.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lyra.errors import ConfigError

_SHOWN_CHARS_MAX = 200


@cache
def agui_types() -> Any:
    """The module `ag_ui.core`."""
    try:
        from ag_ui import core
    except ImportError:
        raise ConfigError("AG-UI needs the agui extra", hint="pip install 'lyra-agents[agui]'") from None
    return core


def read_input(body: bytes) -> Any:
    """The RunAgentInput of a request; ConfigError, which names the place, for anything else."""
    types = agui_types()
    from pydantic import ValidationError

    try:
        return types.RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:_SHOWN_CHARS_MAX]
        reason = str(first["msg"])[:_SHOWN_CHARS_MAX]
        raise ConfigError(f"the body is no RunAgentInput: {place or 'body'}: {reason}", key=place or None) from None


def event_bytes(event: Any) -> bytes:
    """One event as a server-sent event."""
    data: str = event.model_dump_json(by_alias=True)
    return b"data: " + data.encode("utf-8", "replace") + b"\n\n"
