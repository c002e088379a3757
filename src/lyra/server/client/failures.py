"""How a call that failed is raised: the LyraError that the server raised, with its fields.

The server sends it in the trailing metadata. A call that never reached the server, or that a proxy ended, has only a
status code; its error comes from the table below.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.errors import (
    ConfigError,
    Corrupt,
    DeadlineExceeded,
    Denied,
    EffectFailed,
    InternalError,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
    Unauthenticated,
    error_from_data,
)

ERROR_KEY: Final = "lyra-error-bin"


_BY_STATUS: Final[dict[str, type[LyraError]]] = {
    "INVALID_ARGUMENT": ConfigError,
    "OUT_OF_RANGE": ConfigError,
    "UNIMPLEMENTED": ConfigError,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Denied,
    "RESOURCE_EXHAUSTED": LimitExceeded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NOT_FOUND": NoSuchProcess,
    "ALREADY_EXISTS": NameTaken,
    "FAILED_PRECONDITION": ProcessError,
    "ABORTED": EffectFailed,
    "DATA_LOSS": Corrupt,
}


def error_of(failure: Any, address: str) -> LyraError:
    """The LyraError of a failed call (an error of grpc)."""
    for key, value in failure.trailing_metadata() or ():
        if key == ERROR_KEY:
            return _sent(value)
    status = failure.code().name
    details = failure.details() or status
    if status == "UNAVAILABLE":
        return Overloaded(
            f"the server at {address} cannot be reached: {details}",
            hint="is `lyra serve` running there?",
            address=address,
        )
    return _BY_STATUS.get(status, InternalError)(f"the server at {address} answered {status}: {details}")


def _sent(data: bytes) -> LyraError:
    try:
        return error_from_data(msgspec.json.decode(data, type=dict))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return LyraError("the server's error could not be read")
