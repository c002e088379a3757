"""Every error Lyra raises, in one tree.

    LyraError(code, retryable, fields)
      ConfigError                     a setting, flag or file that cannot be used as it stands
      SourceError(file, line, column) a mistake in a source text
        ParseError  CheckError  BytecodeError
      Denied                          asked for something the caller has no right to
        CapabilityDenied  ApprovalRefused  SandboxUnavailable  Unauthenticated
      LimitExceeded                   a bound was reached; more of it would help
        BudgetExceeded  RateLimited  CircuitOpen  Overloaded  DeadlineExceeded
      EffectFailed                    an act outside the process went wrong
        ModelError(kind)  ToolError  AgentFailed  EffectInDoubt  OutcomeUnknown
      ProcessError                    about the process table
        NoSuchProcess  NoSuchAgent  NoSuchEnvelope  NoSuchService  NoSuchHandler  NoSuchGroup  NoSuchInterrupt
        NameTaken  InvalidTransition  ProcessExit
      ContractViolation(kind, expression, values)
      VegaError(name, text)           an error that a Vega program did not catch
      Divergence(expected, actual, at) a replay asked for something its journal does not hold
      StoreError                      the store cannot do what was asked
        Conflict  Corrupt  Tampered  StoreFull  NoSuchSession  NoCluster  Unreachable
      InternalError                   "this is a bug in Lyra"

An error says what happened in one sentence, may have a place and a hint, and carries its facts as `fields`, so that
every surface (terminal, HTTP, gRPC, Vega's `catch`) can show them in its own way. `CODES` maps each code to those
surfaces. Errors hold no secrets: `fields` may be printed, journaled and sent.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

__all__ = [
    "CODES",
    "AgentFailed",
    "ApprovalRefused",
    "BudgetExceeded",
    "BytecodeError",
    "CapabilityDenied",
    "CheckError",
    "CircuitOpen",
    "ConfigError",
    "Conflict",
    "ContractViolation",
    "Corrupt",
    "DeadlineExceeded",
    "Denied",
    "Divergence",
    "EffectFailed",
    "EffectInDoubt",
    "InternalError",
    "InvalidTransition",
    "LimitExceeded",
    "LyraError",
    "ModelError",
    "NameTaken",
    "NoCluster",
    "NoSuchAgent",
    "NoSuchEnvelope",
    "NoSuchGroup",
    "NoSuchHandler",
    "NoSuchInterrupt",
    "NoSuchProcess",
    "NoSuchService",
    "NoSuchSession",
    "OutcomeUnknown",
    "Overloaded",
    "ParseError",
    "ProcessError",
    "ProcessExit",
    "RateLimited",
    "SandboxUnavailable",
    "SourceError",
    "StoreError",
    "StoreFull",
    "Surface",
    "Tampered",
    "ToolError",
    "Unauthenticated",
    "Unreachable",
    "VegaError",
    "error_from_data",
    "error_to_data",
]


class Surface(NamedTuple):
    """How one error code looks on each surface."""

    grpc: str
    http: int
    exit: int
    catch: str


class LyraError(Exception):
    """The root: one sentence, an optional place and hint, and the facts as fields."""

    code: ClassVar[str] = "lyra"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, place: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place
        self.fields = fields

    def __str__(self) -> str:
        return self.message

    def __getattr__(self, name: str) -> Any:
        """Give fields as attributes (`error.limit`); only called when no other attribute has that name."""
        if name.startswith("__") or name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None

    def render(self) -> str:
        """Return the error in up to three lines for a person: message, place, hint."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.place:
            lines.append(f"  at {self.place}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class ConfigError(LyraError):
    code = "config"


class SourceError(LyraError):
    code = "source"

    def __init__(
        self,
        message: str,
        *,
        file: str = "",
        line: int = 0,
        column: int = 0,
        hint: str | None = None,
        **fields: Any,
    ) -> None:
        place = f"{file}:{line}:{column}" if file else None
        super().__init__(message, hint=hint, place=place, file=file, line=line, column=column, **fields)


class ParseError(SourceError):
    code = "parse"


class CheckError(SourceError):
    code = "check"


class BytecodeError(SourceError):
    code = "bytecode"


class Denied(LyraError):
    code = "denied"


class CapabilityDenied(Denied):
    code = "capability_denied"


class ApprovalRefused(Denied):
    code = "approval_refused"


class SandboxUnavailable(Denied):
    code = "sandbox_unavailable"


class Unauthenticated(Denied):
    """A caller of a server has given no token that is known, or has not said which user it calls for."""

    code = "unauthenticated"


class LimitExceeded(LyraError):
    code = "limit"


class BudgetExceeded(LimitExceeded):
    code = "budget_exceeded"

    @property
    def partial(self) -> str:
        """The text of an answer that the budget cut; empty where no answer had begun."""
        return str(self.fields.get("partial") or "")


class RateLimited(LimitExceeded):
    code = "rate_limited"
    retryable = True


class CircuitOpen(LimitExceeded):
    code = "circuit_open"
    retryable = True


class Overloaded(LimitExceeded):
    code = "overloaded"
    retryable = True


class DeadlineExceeded(LimitExceeded, TimeoutError):
    code = "deadline_exceeded"
    retryable = True


class EffectFailed(LyraError):
    code = "effect_failed"


class ModelError(EffectFailed):
    """`kind` says what went wrong, such as rate_limit, overloaded, timeout, auth, bad_request, temporary or
    stream_truncated; `retry_after_s` is set where the provider asked for a pause."""

    code = "model_error"


class ToolError(EffectFailed):
    code = "tool_error"


class AgentFailed(EffectFailed):
    code = "agent_failed"


class EffectInDoubt(EffectFailed):
    code = "effect_in_doubt"


class OutcomeUnknown(EffectInDoubt):
    """The program that performed an effect is gone, and whether it did is not known. Raised inside an effect, the
    kernel asks a person; a caller outside any process gets it as it is."""

    code = "outcome_unknown"


class ProcessError(LyraError):
    code = "process"


class NoSuchProcess(ProcessError):
    code = "no_such_process"


class NoSuchAgent(ProcessError):
    """No agent is registered under that name."""

    code = "no_such_agent"


class NoSuchEnvelope(ProcessError):
    """The kernel keeps no envelope with that id."""

    code = "no_such_envelope"


class NoSuchService(ProcessError):
    code = "no_such_service"


class NoSuchHandler(ProcessError):
    """No handler is registered for messages of that type."""

    code = "no_such_handler"


class NoSuchInterrupt(ProcessError):
    code = "no_such_interrupt"


class NoSuchGroup(ProcessError):
    code = "no_such_group"


class NameTaken(ProcessError):
    code = "name_taken"


class InvalidTransition(ProcessError):
    code = "invalid_transition"


class ProcessExit(ProcessError):
    """Raised when waiting for a process that ended without a result."""

    code = "process_exit"


class ContractViolation(LyraError):
    code = "contract_violation"


class VegaError(LyraError):
    """An error that a program did not catch: `name` (as `catch` knows it), `text`, `file`, `line`, `column`."""

    code = "vega"

    @classmethod
    def of(cls, error: Any) -> Self:
        """Return the error for one of the Vega machine: what was thrown, where, and the calls that led there."""
        place = f"{error.file}:{error.line}:{error.column}" if error.line else error.file or None
        return cls(
            f"{error.name}: {error.text}",
            place=place,
            name=error.name,
            text=error.text,
            file=error.file,
            line=error.line,
            column=error.column,
            trace=list(error.trace),
        )

    @property
    def shown_code(self) -> str:
        """Return what stands in `error[…]`: the code of an error of Lyra's, else the name that the program gave it."""
        name = str(self.fields["name"])
        return _CODE_OF_CATCH.get(name, name)

    @property
    def exit_code(self) -> int:
        """The exit code of a command whose program ended with it: an error of Lyra's is not made another by passing
        through a program."""
        return CODES[_CODE_OF_CATCH.get(str(self.fields["name"]), self.code)].exit

    def render(self) -> str:
        lines = [f"error[{self.shown_code}]: {self.fields['text']}"]
        if self.place:
            lines.append(f"  at {self.place}")
        return "\n".join(lines)


class Divergence(LyraError):
    """Fields: `expected` (what the journal holds), `actual` (what the program asked), `at` (the effect's key)."""

    code = "divergence"


class StoreError(LyraError):
    code = "store"


class Conflict(StoreError):
    code = "conflict"


class Corrupt(StoreError):
    code = "corrupt"


class Tampered(Corrupt):
    """The store is sound, and is not what the kernels of this user signed."""

    code = "tampered"


class StoreFull(StoreError):
    code = "store_full"
    retryable = True


class NoCluster(StoreError):
    """The schema of a database has no directory of a cluster."""

    code = "no_cluster"


class Unreachable(StoreError):
    """A host of a cluster did not answer: whether it did what was asked is not known."""

    code = "unreachable"
    retryable = True


class NoSuchSession(StoreError):
    """No session on disk has that id."""

    code = "no_such_session"


class InternalError(LyraError):
    code = "internal"

    def __init__(self, message: str, **fields: Any) -> None:
        hint = fields.pop("hint", None) or "this is a bug in Lyra; please report it with the steps that led here"
        super().__init__(message, hint=hint, **fields)


# The one table of surfaces. Exit codes: 1 the program failed, 2 bad usage, source or settings, 3 denied, 4 a limit.
CODES: dict[str, Surface] = {
    "lyra": Surface("UNKNOWN", 500, 1, "Error"),
    "config": Surface("INVALID_ARGUMENT", 400, 2, "ConfigError"),
    "source": Surface("INVALID_ARGUMENT", 400, 2, "SourceError"),
    "parse": Surface("INVALID_ARGUMENT", 400, 2, "ParseError"),
    "check": Surface("INVALID_ARGUMENT", 400, 2, "CheckError"),
    "bytecode": Surface("INVALID_ARGUMENT", 400, 2, "BytecodeError"),
    "denied": Surface("PERMISSION_DENIED", 403, 3, "Denied"),
    "capability_denied": Surface("PERMISSION_DENIED", 403, 3, "CapabilityDenied"),
    "approval_refused": Surface("PERMISSION_DENIED", 403, 3, "ApprovalRefused"),
    "sandbox_unavailable": Surface("PERMISSION_DENIED", 403, 3, "SandboxUnavailable"),
    "unauthenticated": Surface("UNAUTHENTICATED", 401, 3, "Unauthenticated"),
    "limit": Surface("RESOURCE_EXHAUSTED", 429, 4, "LimitExceeded"),
    "budget_exceeded": Surface("RESOURCE_EXHAUSTED", 402, 4, "BudgetExceeded"),
    "rate_limited": Surface("RESOURCE_EXHAUSTED", 429, 4, "RateLimited"),
    "circuit_open": Surface("UNAVAILABLE", 503, 4, "CircuitOpen"),
    "overloaded": Surface("UNAVAILABLE", 503, 4, "Overloaded"),
    "deadline_exceeded": Surface("DEADLINE_EXCEEDED", 504, 4, "DeadlineExceeded"),
    "effect_failed": Surface("ABORTED", 502, 1, "EffectFailed"),
    "model_error": Surface("UNAVAILABLE", 502, 1, "ModelError"),
    "tool_error": Surface("ABORTED", 502, 1, "ToolError"),
    "agent_failed": Surface("ABORTED", 502, 1, "AgentFailed"),
    "effect_in_doubt": Surface("ABORTED", 409, 1, "EffectInDoubt"),
    "outcome_unknown": Surface("ABORTED", 409, 1, "OutcomeUnknown"),
    "process": Surface("FAILED_PRECONDITION", 409, 1, "ProcessError"),
    "no_such_process": Surface("NOT_FOUND", 404, 1, "NoSuchProcess"),
    "no_such_agent": Surface("NOT_FOUND", 404, 1, "NoSuchAgent"),
    "no_such_envelope": Surface("NOT_FOUND", 404, 1, "NoSuchEnvelope"),
    "no_such_service": Surface("NOT_FOUND", 404, 1, "NoSuchService"),
    "no_such_handler": Surface("NOT_FOUND", 404, 1, "NoSuchHandler"),
    "no_such_group": Surface("NOT_FOUND", 404, 1, "NoSuchGroup"),
    "no_such_interrupt": Surface("NOT_FOUND", 404, 1, "NoSuchInterrupt"),
    "name_taken": Surface("ALREADY_EXISTS", 409, 1, "NameTaken"),
    "invalid_transition": Surface("FAILED_PRECONDITION", 409, 1, "InvalidTransition"),
    "process_exit": Surface("ABORTED", 500, 1, "ProcessExit"),
    "vega": Surface("ABORTED", 500, 1, "Error"),
    "contract_violation": Surface("FAILED_PRECONDITION", 422, 1, "ContractViolation"),
    "divergence": Surface("DATA_LOSS", 409, 1, "Divergence"),
    "store": Surface("UNAVAILABLE", 503, 1, "StoreError"),
    "conflict": Surface("ABORTED", 409, 1, "Conflict"),
    "corrupt": Surface("DATA_LOSS", 500, 1, "Corrupt"),
    "tampered": Surface("DATA_LOSS", 500, 3, "Tampered"),
    "store_full": Surface("RESOURCE_EXHAUSTED", 507, 1, "StoreFull"),
    "no_cluster": Surface("FAILED_PRECONDITION", 409, 1, "NoCluster"),
    "unreachable": Surface("UNAVAILABLE", 503, 1, "Unreachable"),
    "no_such_session": Surface("NOT_FOUND", 404, 2, "NoSuchSession"),
    "internal": Surface("INTERNAL", 500, 1, "InternalError"),
}

# The code of an error that a Vega program has met under its catch name; `Error` is the name of any.
_CODE_OF_CATCH = {surface.catch: code for code, surface in CODES.items() if surface.catch != "Error"}


def _classes(root: type[LyraError]) -> dict[str, type[LyraError]]:
    by_code = {root.code: root}
    for sub in root.__subclasses__():
        for code, cls in _classes(sub).items():
            by_code.setdefault(code, cls)  # a class elsewhere that borrows a code does not represent it
    return by_code


def error_to_data(error: LyraError) -> dict[str, Any]:
    """Return the error as plain data, for a journal row or a wire."""
    data: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.hint:
        data["hint"] = error.hint
    if error.place:
        data["place"] = error.place
    if error.fields:
        data["fields"] = {key: _to_plain(value) for key, value in error.fields.items()}
    return data


def error_from_data(data: dict[str, Any]) -> LyraError:
    """Return the error that `error_to_data` described; an unknown code gives a plain LyraError that keeps the
    sentence."""
    cls = _classes(LyraError).get(str(data.get("code")), LyraError)
    error = cls.__new__(cls)
    fields = data.get("fields")
    LyraError.__init__(error, str(data.get("message", "")))
    error.hint = data["hint"] if isinstance(data.get("hint"), str) else None
    error.place = data["place"] if isinstance(data.get("place"), str) else None
    error.fields = {str(key): value for key, value in fields.items()} if isinstance(fields, dict) else {}
    return error


def _to_plain(value: Any) -> Any:
    """Values that survive a journal unchanged; anything else as its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _to_plain(item) for key, item in value.items()}
    return str(value)
