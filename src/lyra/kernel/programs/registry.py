"""Programs: async functions known by name, so that a journal can find them again.

A process remembers its program as `module:function`, or by a fixed name where it is Lyra's own (`core.naming`).
`Programs` maps those names to functions; a name in a journal is only ever looked up here, never imported. Arguments
come back through the same form as results: what a program gets is what its journal holds, read as the types that its
parameters declare.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, TypeVar

from lyra.core import codec
from lyra.core.checking.check import did_you_mean
from lyra.core.hints import resolve_hint
from lyra.core.limits import PROGRAMS_KEPT
from lyra.core.naming import get_qualified_name, old_names
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Limits
    from lyra.core.policies.policy import Supervision
    from lyra.core.rights.capability import Rights
    from lyra.kernel.process.process import Process


H_co = TypeVar("H_co", covariant=True)
_HINT: Final = "register it: Kernel(…, programs=[…]) or kernel.register(program)"
_NAMES_SHOWN: Final = 8


class SpawnOptions(TypedDict, total=False):
    """The options of a spawn, and their types."""

    pid: str | None
    name: str | None
    supervision: Supervision | str | Mapping[str, Any] | None
    budget: Limits | None
    grant: Rights | None
    priority: str | None
    recovery_attempts: int | None


class ChildOptions(SpawnOptions, total=False):
    """The options of a spawn by a program, which may say where in a cluster its child begins."""

    shard: str | None
    near: Any  # an address, or a handle
    resources: Mapping[str, float] | None


class Spawnable(Protocol[H_co]):
    """A declaration (an Agent) that knows the program it runs as, and the handle that its users hold."""

    @property
    def __lyra_program__(self) -> Callable[..., Any]: ...

    @property
    def __lyra_handle__(self) -> Callable[[Any, Process], H_co]: ...


def program_of(thing: Any) -> Callable[..., Any]:
    """Return the async function behind what was given to spawn: itself, or what a declaration (an Agent) runs as."""
    program: Callable[..., Any] = getattr(thing, "__lyra_program__", thing)
    return program


class Programs:
    def __init__(self, became_known: Callable[[str], None], programs: Iterable[Any] = ()) -> None:
        self._became_known = became_known  # called with each new name: processes that waited for it continue
        self._by_name: dict[str, Callable[..., Any]] = {}
        self._names: dict[Callable[..., Any], str] = {}
        self._types: dict[Callable[..., Any], list[Any]] = {}
        self._result_types: dict[str, Any] = {}  # by name; None where a program declares none
        for program in programs:
            self.name(program)

    def name(self, program: Callable[..., Any]) -> str:
        """Return the program's name; from now on it is known by it, and processes that waited for it continue."""
        try:
            name = self._names.get(program)
        except TypeError:  # it cannot be hashed, so it is no function
            name = None
        return name if name is not None else self._add(program_of(program))

    def _add(self, program: Callable[..., Any]) -> str:
        if not inspect.iscoroutinefunction(program):
            raise ConfigError(f"a program is an async function, not {program!r}", hint="write `async def main(ctx, …)`")
        name = get_qualified_name(program)
        new = name not in self._by_name
        if len(self._names) >= PROGRAMS_KEPT:  # functions made anew for each spawn must not pile up
            self._names.clear()
            self._types.clear()
            self._result_types.clear()
        self._by_name[name] = program
        for old in old_names(name):
            self._by_name[old] = program
        self._names[program] = name
        self._result_types[name] = _type_of(program, inspect.signature(program).return_annotation)
        if new:
            self._became_known(name)
        return name

    def get(self, name: str) -> Callable[..., Any] | None:
        return self._by_name.get(name)

    def list_known(self) -> dict[str, Callable[..., Any]]:
        """Return the programs that are known, by name; a copy."""
        return dict(self._by_name)

    def begin(self, program: Callable[..., Any], ctx: Any, args: Iterable[Any]) -> Coroutine[Any, Any, Any]:
        try:
            started: Coroutine[Any, Any, Any] = program(ctx, *args)
        except TypeError as error:
            raise ConfigError(f"{get_qualified_name(program)} cannot be called like this: {error}") from error
        return started

    def arguments(self, program: Callable[..., Any], data: bytes) -> list[Any]:
        """Saved arguments as the program's parameters want them."""
        return list(self._convert(program, codec.decode(data)))

    def reread_arguments(self, program: Callable[..., Any], args: tuple[Any, ...], data: bytes) -> Sequence[Any]:
        """Return arguments that were just saved: what saving does not change is not read back."""
        for value in args:
            if type(value) not in codec.UNCHANGED:
                return self.arguments(program, data)
        return self._convert(program, args)

    def result(self, name: str, value: Any) -> Any:
        """Return what a program gave, as the type that it declares; the value itself where this kernel does not know
        it."""
        return value if type(value) in codec.UNCHANGED else codec.convert(value, self._result_types.get(name))

    def _convert(self, program: Callable[..., Any], values: Sequence[Any]) -> Sequence[Any]:
        types = self._types.get(program)
        if types is None:
            types = self._types[program] = _parameter_types(program)
        if not types:
            return values
        return [codec.convert(value, types[i] if i < len(types) else None) for i, value in enumerate(values)]


def unknown_program(name: str, programs: Programs) -> ConfigError:
    """Return the error of a program that is not known by this name; its hint names those that may be meant."""
    known = sorted(word for word in programs.list_known() if not word.startswith(("lyra:", "lyra.")))
    short = name.rpartition(":")[2]
    shorts = {word.rpartition(":")[2]: word for word in known}
    near = [word for word in known if word.rpartition(":")[2] == short]
    if not near:
        word = did_you_mean(name, known) or shorts.get(did_you_mean(short, shorts) or "")
        near = [] if word is None else [word]
    if near:
        hint = f"did you mean {' or '.join(near[:_NAMES_SHOWN])}?"
    elif known:
        more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
        hint = f"it knows {', '.join(known[:_NAMES_SHOWN])}{more}; {_HINT}"
    else:
        hint = _HINT
    return ConfigError(f"this kernel does not know the program {name!r}", hint=hint, program=name)


def dormant_process(pid: str, name: str) -> ConfigError:
    """For callers that wait for a process which cannot continue."""
    message = f"process {pid} cannot go on: this kernel does not know its program {name!r}"
    return ConfigError(message, hint=_HINT, pid=pid, program=name)


def _parameter_types(program: Callable[..., Any]) -> list[Any]:
    parameters = list(inspect.signature(program).parameters.values())[1:]
    types = [
        _type_of(program, parameter.annotation)
        for parameter in parameters
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    return types if any(kind is not None for kind in types) else []


def _type_of(program: Callable[..., Any], annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty or annotation is None:
        return None
    try:
        return resolve_hint(program, annotation)
    except Exception:  # noqa: BLE001 - an annotation that cannot be looked up: plain values will do
        return None
