"""A Tool: a name, a schema, the Capabilities it needs, and the function that runs it.

Owns the declaration, and the two values that travel between a model and a tool: `ToolCall` (the request) and
`ToolResult` (the output). The kernel's door decides whether a call is allowed, and the registry keeps the
tools; nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

import msgspec

from lyra.core.checking.check import check_integer, check_keys, is_nested_deeper, one_of, real, short_text
from lyra.core.hints import Parameters, Result_co
from lyra.core.limits import NAME_LENGTH_MAX, VALUE_DEPTH_MAX
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError, DeadlineExceeded, Denied, LyraError

# A Tool that is run by one of these has no other description of its arguments than its schema.
PLAIN_FUNCTIONS: Final = (FunctionType, MethodType)

_Owner = TypeVar("_Owner")
_Result = TypeVar("_Result")
_Rest = ParamSpec("_Rest")

# The pid of the process whose call a tool is running; "" outside of a process.
caller: Final[ContextVar[str]] = ContextVar("lyra_caller", default="")
# What that process may do. None outside of a process: then only the rights that the tool itself was built with.
rights: Final[ContextVar[Grant | None]] = ContextVar("lyra_rights", default=None)
# The real path that the running call was allowed for, where it was about one: if the path leads to another file by now,
# the tool does not touch it.
admitted: Final[ContextVar[str | None]] = ContextVar("lyra_admitted", default=None)
# A file outside the folders of its tool that a person has allowed the running call to read.
opened: Final[ContextVar[str | None]] = ContextVar("lyra_opened", default=None)
# Whether a person has allowed the running command, knowing that no sandbox holds it.
unheld: Final[ContextVar[bool]] = ContextVar("lyra_unheld", default=False)
# Tells which files a search of the running call leaves out, besides those that its workspace hides.
hides: Final[ContextVar[Callable[[str], bool] | None]] = ContextVar("lyra_hides", default=None)
# Registers a function that is called when that process or its kernel ends; it may give futures to wait for.
ending: Final[ContextVar[Callable[[Callable[[], Any]], None] | None]] = ContextVar("lyra_ending", default=None)


class JobLog(Protocol):
    """Keeps what is known of commands in the background for the time after the process that started them. A job is
    named by the pid of that process and a number."""

    def last(self, pid: str) -> int:
        """Return the number of the last job that a process has started; 0 where it has started none."""
        ...

    def copy_for(self, pid: str, number: int) -> str | None:
        """Return the path of a new file for the output of a job that is about to start; None: it is not kept."""
        ...

    def on_started(self, pid: str, number: int, command: str, stop: Callable[[], None]) -> None: ...

    def on_ended(self, pid: str, number: int, status: str, how: str) -> None:
        """`status` is done, failed or stopped, `how` says it in words."""
        ...

    def earlier(self, pid: str, number: int) -> str | None:
        """Return what is known of a job from an earlier life of its process, in words; None where there was none."""
        ...


# Keeps a record of the jobs that a tool leaves running in the background.
job_log: Final[ContextVar[JobLog | None]] = ContextVar("lyra_job_log", default=None)
# Receives what a running tool reports.
progress: Final[ContextVar[Callable[[str, float | None], None] | None]] = ContextVar("lyra_progress", default=None)


class Answering(Protocol):
    """Answers requests that the other end of a running call makes; None is a refusal."""

    @property
    def pid(self) -> str: ...

    async def elicit(self, server: str, message: str, schema: dict[str, Any]) -> dict[str, Any] | None: ...

    async def sample(self, server: str, name: str, request: dict[str, Any]) -> str | None: ...


# Answers for the process whose call is running.
answering: Final[ContextVar[Answering | None]] = ContextVar("lyra_answering", default=None)

CONCURRENCY: Final[dict[str, str]] = {
    "parallel": "beside any other call",
    "sequential": "one call of this tool at a time",
    "exclusive": "nothing else beside it",
}
ERROR_CODES: Final[dict[str, str]] = {
    "invalid_arguments": "the call cannot be made with these arguments",
    "not_found": "what it names does not exist",
    "permission_denied": "it is not allowed, or no person allowed it",
    "timeout": "it took longer than it may",
    "io_error": "reading or writing failed",
    "exec_failed": "what was run failed",
    "cancelled": "it was stopped before it was done",
    "other": "none of these",
}
# The words that tools use as reasons, and the code of each.
_CODE_OF: Final[dict[str, str]] = {
    **{code: code for code in ERROR_CODES},
    **dict.fromkeys(
        ("not_a_file", "not_a_folder", "no_match", "many_matches", "not_read", "changed"), "invalid_arguments"
    ),
    **dict.fromkeys(("binary", "encoding", "invalid_file", "too_large"), "io_error"),
}

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FIRST: Final = _LETTERS | {"_"}
_NAME: Final = _LETTERS | frozenset("0123456789_-")


def check_tool_name(name: Any) -> str:
    """Check that a name is a letter or `_`, then letters, digits, `_` and `-`: what every model provider accepts."""
    text = short_text(name, "a tool's name", most=NAME_LENGTH_MAX)
    if not text or text[0] not in _FIRST or not _NAME.issuperset(text):
        raise ConfigError(
            f"{text!r} is not a tool's name",
            hint="start with a letter; use letters, digits, '_' and '-'",
            key="name",
        )
    return text


def report(text: str, fraction: float | None = None) -> None:
    """Report progress from a running tool, in words and as a fraction; without a listener nothing happens."""
    listener = progress.get()
    if listener is not None:
        listener(text, fraction)


def error_code(error: BaseException) -> str:
    """Return the error code for the exception of a call; the same for an error that was read from a journal."""
    if isinstance(error, LyraError):
        code_of_reason = _CODE_OF.get(str(error.fields.get("reason", "")))
        if code_of_reason is not None:
            return code_of_reason
        if isinstance(error, Denied):
            return "permission_denied"
        return "timeout" if isinstance(error, DeadlineExceeded) else "other"
    for kind, code in _PYTHON:
        if isinstance(error, kind):
            return code
    return "exec_failed"


_PYTHON: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "timeout"),
    (FileNotFoundError, "not_found"),
    (PermissionError, "permission_denied"),
    (OSError, "io_error"),
)


class Holding(NamedTuple):
    """How a command line would be held. `works`: a sandbox does; None: it needs none. `network`: it would reach hosts.
    `reads`: it would only read, and no settings name a program for it. `reaches`: addresses, to be shown to a
    person."""

    works: bool | None
    network: bool = False
    reads: bool = False
    reaches: str = ""


class Tool(msgspec.Struct, frozen=True):
    """`schema` is a JSON schema of the arguments (an object); `run` takes them as keywords.

    `untrusted`: its output is text from outside (a file, a page, a command) and taints the session. `guarded`: a person
    is asked about its calls even where its agent names no permissions. `concurrency`: a word of CONCURRENCY, or how
    many calls of it may run at a time. `deferred`: its schema is sent once ToolSearch has found it. `harmless`: it does
    nothing outside the conversation, and needs no rule. `folders`: the folders that its paths are in. `foreign`: its
    description and schema are text from outside too, and taint the session that they are sent to. `trusted`: its output
    is the program's own text; where permissions apply, the output of a tool that is not trusted taints the session.
    `builtin`: it is one of Lyra's own tools, whose calls permission rules can parse; a user's tool of that name is not.
    `confined`: the program that runs it has no network and no folder to write in, so nothing can leave by a call.
    `polling`: it tells how something goes that takes its time, so that the same call with the same result is no loop.
    `holds`: how the sandbox of a tool that runs commands would hold one with these rights. `check`: takes the arguments
    as `run` does, changes nothing, and raises the ToolError of a call that cannot work: no person is asked about it.
    """

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    needs: tuple[Capability, ...] = ()
    idempotent: bool = False
    run: Callable[..., Any] | None = None
    needs_of: Callable[[dict[str, Any]], Iterable[Capability]] | None = None  # the additional needs of one call
    untrusted: bool = False
    guarded: bool = False
    concurrency: str | int = "parallel"
    deferred: bool = False
    timeout_s: float | None = None
    harmless: bool = False
    folders: tuple[str, ...] = ()
    foreign: bool = False
    trusted: bool = False
    builtin: bool = False  # set by `mark_builtin`
    confined: bool = False
    polling: bool = False
    holds: Callable[[Grant, str], Holding] | None = None
    check: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        check_tool_name(self.name)
        schema: object = self.schema or {"type": "object", "properties": {}}
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            raise ConfigError(f"the schema of tool {self.name!r} describes an object", key="schema")
        if self.run is not None and not callable(self.run):
            raise ConfigError(f"tool {self.name!r} is run by a function", key="run")
        if self.schema and isinstance(self.run, PLAIN_FUNCTIONS):
            from lyra.core.checking.schema import CheckedSchema  # few programs write a schema themselves

            CheckedSchema(schema, f"tool {self.name!r}", key="schema")
        if isinstance(self.concurrency, str):
            one_of(self.concurrency, CONCURRENCY, "concurrency")
        else:
            check_integer(self.concurrency, "concurrency", least=1, most=10**4)
        if self.timeout_s is not None:
            put(self, "timeout_s", real(self.timeout_s, "timeout_s", least=0.001))
        if self.trusted and self.untrusted:
            raise ConfigError(f"tool {self.name!r} is trusted or untrusted, not both", key="trusted")
        put(self, "schema", dict(schema))
        put(self, "needs", tuple(Capability.of(need) for need in self.needs))

    def needs_for(self, arguments: dict[str, Any]) -> tuple[Capability, ...]:
        """Return the rights that a process needs for one call: to use the tool, and those of the tool with these
        arguments."""
        own = (Capability("tool.use", self.name), *self.needs)
        return own if self.needs_of is None else (*own, *self.needs_of(arguments))

    @property
    def __lyra_effect__(self) -> dict[str, Any]:
        """Return what the call of the tool by a program (`ctx.do(tool, …)`) declares."""
        return {"needs": self._needs_of_program, "idempotent": self.idempotent, "timeout_s": self.timeout_s}

    def _needs_of_program(self, *args: Any, **kwargs: Any) -> tuple[Capability, ...]:
        names = [name for name in self.schema.get("properties", ()) if name not in kwargs]
        return self.needs_for({**dict(zip(names, args, strict=False)), **kwargs})

    def mark_builtin(self) -> Tool:
        """This tool marked as one of Lyra's own."""
        return msgspec.structs.replace(self, builtin=True)

    def __get__(self, owner: Any, kind: Any = None) -> Tool:
        """As an attribute of a class it is a method: an object's tool runs with that object."""
        bound = getattr(self.run, "bind", None)
        if owner is None or bound is None:
            return self
        run = bound(owner)
        return self if run is self.run else msgspec.structs.replace(self, run=run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that the tool was made of: for tests, and for code outside any agent."""
        if self.run is None:
            raise ConfigError(f"tool {self.name!r} has nothing to run", key="run")
        return getattr(self.run, "function", self.run)(*args, **kwargs)


class FunctionTool(Tool, Generic[Parameters, Result_co], frozen=True):
    """A Tool that `@tool` made of a function. It is called as the function is, and type checkers know how."""

    if TYPE_CHECKING:

        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co: ...

        @overload
        def __get__(self, owner: None, kind: Any = None) -> FunctionTool[Parameters, Result_co]: ...
        @overload
        def __get__(
            self: FunctionTool[Concatenate[_Owner, _Rest], _Result], owner: _Owner, kind: Any = None
        ) -> FunctionTool[_Rest, _Result]: ...
        def __get__(self, owner: Any, kind: Any = None) -> Any: ...


class ToolCall(msgspec.Struct, frozen=True):
    """A model asks for a tool to be run; `id` ties the result to it. `masked`: its arguments had a key in them that the
    process knows. The key is masked in what is kept and shown, and the call is not run. `problem`: why its arguments
    could not be read, in words for the model; it has none then, and is not run either."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    masked: bool = False
    problem: str = ""

    def __post_init__(self) -> None:
        short_text(self.id, "a tool call's id", most=NAME_LENGTH_MAX)
        check_tool_name(self.name)
        arguments: object = self.arguments
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise ConfigError(f"the arguments of {self.name!r} are a mapping of names to values", key="arguments")
        if is_nested_deeper(arguments, VALUE_DEPTH_MAX):
            raise ConfigError(
                f"the arguments of {self.name!r} are nested more than {VALUE_DEPTH_MAX} levels deep", key="arguments"
            )

    def to_data(self) -> dict[str, Any]:
        data = {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}
        if self.problem:
            data["problem"] = self.problem
        return {**data, "masked": True} if self.masked else data

    @classmethod
    def from_data(cls, data: Any) -> ToolCall:
        return cls(**_fields(data, cls, "a tool call"))


class ToolResult(msgspec.Struct, frozen=True):
    """The output of a tool; an error goes to the model, which may correct its call."""

    id: str
    name: str
    output: Any = None
    is_error: bool = False
    error_code: str = ""  # one of ERROR_CODES; "" without an error, or in a journal of an older version

    def __post_init__(self) -> None:
        short_text(self.id, "a tool result's id", most=NAME_LENGTH_MAX)
        check_tool_name(self.name)
        if not isinstance(self.is_error, bool):
            raise ConfigError(f"is_error is true or false, not {self.is_error!r}", key="is_error")
        if self.error_code:
            one_of(self.error_code, ERROR_CODES, "error_code")

    def to_data(self) -> dict[str, Any]:
        data = {"id": self.id, "name": self.name, "output": self.output}
        if self.is_error:
            data["is_error"] = True
        if self.error_code:
            data["error_code"] = self.error_code
        return data

    @classmethod
    def from_data(cls, data: Any) -> ToolResult:
        return cls(**_fields(data, cls, "a tool result"))


def _fields(data: Any, cls: type[msgspec.Struct], what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{what} is a mapping, not {data!r}")
    check_keys(data, cls.__struct_fields__, what)
    for name in ("id", "name"):
        if name not in data:
            raise ConfigError(f"{what} has a {name!r}", key=name)
    return dict(data)
