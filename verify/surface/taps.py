"""Taps on entries of the surface: each tells when a program uses its entry, or switches the entry off.

Switched off is what a promise without anything behind it looks like: a function does nothing and gives None, a
parameter, field, flag or setting has its default value whatever was given (None, where it has none), an Event is not
delivered, an error has another code, a command does nothing. A test that still passes does not show the entry.

A function is tapped by replacing its code object, so that every reference to it is tapped. A field of a msgspec.Struct
is tapped where it is read. Classes have no tap of their own: what they do is in their members.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from types import CodeType, FunctionType
from typing import Any, Final

import click
import msgspec

from lyra import errors
from lyra.agents.declaration.agent import AgentDeclaration
from lyra.kernel.base.listeners import Listeners
from lyra.kernel.pipelines import declaration as pipeline_declaration
from lyra.vega.checker import settings as vega_settings
from verify.surface.entries import KINDS, Entry, tapped_callables

__all__ = [
    "PIPELINE_STRUCTS",
    "TAPPED",
    "function_of",
    "has_tap",
    "record",
    "switch_off",
    "switch_off_named",
    "tap_calls",
]

# The kinds with taps; the tests of the others are named by hand, in claims.toml.
TAPPED: Final = ("command", "flag", "name", "parameter", "agent", "vega", "event", "error", "pipeline")


class _Taps:
    """What each tap asks: is this entry off, and if not, whom to tell that it was used."""

    def __init__(self, off: str, used: Callable[[str], None]) -> None:
        self.off = off
        self.used = used

    def uses(self, entry: str) -> bool:
        """Tell of a use; False where the entry is off."""
        if entry == self.off:
            return False
        self.used(entry)
        return True


@functools.cache
def _classes() -> frozenset[str]:
    return frozenset(f"name:{full}" for full, value in tapped_callables() if inspect.isclass(value))


def has_tap(entry: Entry) -> bool:
    """Whether the entry can be switched off."""
    return entry.kind in TAPPED and entry.id not in _classes()


def record(used: Callable[[str], None]) -> None:
    """From now on, tell of every use of an entry in this process."""
    _install(_Taps("", used), lambda _: True)


def switch_off(entry: Entry) -> None:
    """From now on, in this process, the entry does nothing."""
    _install(_Taps(entry.id, lambda _: None), lambda other: other == entry.id)


def switch_off_named(name: str) -> None:
    """`switch_off` of the entry with this id."""
    kind = name.partition(":")[0]
    switch_off(next(entry for entry in KINDS[kind]() if entry.id == name))


def _install(taps: _Taps, wanted: Callable[[str], bool]) -> None:
    _tap_callables(taps, wanted)
    _tap_pipelines(taps, wanted)
    kinds = {kind for kind in TAPPED if any(wanted(entry.id) for entry in KINDS[kind]())}
    if "event" in kinds:
        _tap_events(taps)
    if "error" in kinds:
        _tap_errors(taps)
    if kinds & {"command", "flag"}:
        _tap_commands(taps)
    if "vega" in kinds:
        _tap_vega(taps)


# ---------------------------------------------------------------- functions and their parameters
def _tap_callables(taps: _Taps, wanted: Callable[[str], bool]) -> None:
    for full, value in tapped_callables():
        name = "" if inspect.isclass(value) else f"name:{full}"
        if inspect.isclass(value) and issubclass(value, msgspec.Struct):
            fields = {field: f"parameter:{full}({field})" for field in value.__struct_fields__}
            _tap_fields(taps, value, {field: entry for field, entry in fields.items() if wanted(entry)})
            continue
        function = function_of(value)
        if function is None:
            continue
        kind = "agent:{}" if function is AgentDeclaration.__init__ else f"parameter:{full}({{}})"
        parameters = {parameter: kind.format(parameter) for parameter in inspect.signature(function).parameters}
        chosen = {parameter: entry for parameter, entry in parameters.items() if wanted(entry)}
        if chosen or (name and wanted(name)):
            _tap_function(taps, function, name if wanted(name) else "", chosen)


def function_of(value: Any) -> FunctionType | None:
    """The innermost function of a function, method, property or class (its constructor)."""
    if inspect.isclass(value):
        constructors = (inspect.getattr_static(value, name, None) for name in ("__init__", "__new__"))
        functions = (getattr(member, "__func__", member) for member in constructors)
        value = next((member for member in functions if isinstance(member, FunctionType)), None)
    value = getattr(value, "__func__", value)
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    value = inspect.unwrap(value) if value is not None else None
    return value if isinstance(value, FunctionType) else None


def tap_calls(function: FunctionType, called: Callable[[], Any]) -> None:
    """From now on, tell of each call of a function."""
    original, signature = _copy_of(function), inspect.signature(function)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called()
        return original(*args, **kwargs)

    function.__signature__ = signature  # type: ignore[attr-defined]  # what asks for it sees the function as it was
    function.__code__ = _calling(call, function.__code__)


def _copy_of(function: FunctionType) -> FunctionType:
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _tap_function(taps: _Taps, function: FunctionType, name: str, parameters: dict[str, str]) -> None:
    original, signature = _copy_of(function), inspect.signature(function)
    places = [
        (position, parameter.name, parameter.default, parameters[parameter.name])
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.name in parameters and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    nothing = _NOTHING[_kind_of(function.__code__)]

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name and not taps.uses(name):
            return nothing()
        for position, parameter, default, entry in places:
            by_name = parameter in kwargs
            value = kwargs[parameter] if by_name else args[position] if position < len(args) else default
            if _same(value, default) or taps.uses(entry):
                continue
            value = None if default is inspect.Parameter.empty else default
            if by_name:
                kwargs = {**kwargs, parameter: value}
            else:
                args = (*args[:position], value, *args[position + 1 :])
        return original(*args, **kwargs)

    function.__signature__ = signature  # type: ignore[attr-defined]  # what asks for it sees the function as it was
    function.__code__ = _calling(call, function.__code__)


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:  # noqa: BLE001  # a value that cannot be compared is another one
        return False


def _plain(*args: Any, **kwargs: Any) -> Any:
    return "call".__call__(args, kwargs)  # type: ignore[operator]


def _plain_method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`_plain` for what takes nothing but `self`: pytest counts what a `setup_method` takes before it calls it."""
    return "call".__call__((self, *args), kwargs)  # type: ignore[operator]


async def _coroutine(*args: Any, **kwargs: Any) -> Any:
    return await "call".__call__(args, kwargs)  # type: ignore[operator]


def _generator(*args: Any, **kwargs: Any) -> Any:
    return (yield from "call".__call__(args, kwargs))  # type: ignore[operator]


async def _async_generator(*args: Any, **kwargs: Any) -> Any:
    items = "call".__call__(args, kwargs)  # type: ignore[operator]
    try:
        async for item in items:
            yield item
    finally:
        await items.aclose()


async def _no_answer() -> None:
    return None


async def _no_items() -> Any:
    nothing: tuple[Any, ...] = ()
    for item in nothing:
        yield item


# Kind of function → a function of that kind that hands its arguments to the constant "call".
_SHAPES: Final = {0: _plain, 1: _coroutine, 2: _generator, 3: _async_generator}
_NOTHING: Final[dict[int, Callable[[], Any]]] = {0: lambda: None, 1: _no_answer, 2: lambda: iter(()), 3: _no_items}


def _kind_of(code: CodeType) -> int:
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return 3
    if code.co_flags & inspect.CO_GENERATOR:
        return 2
    return 1 if code.co_flags & inspect.CO_COROUTINE else 0


def _calling(call: Callable[..., Any], old: CodeType) -> CodeType:
    """Code of the same kind that hands its arguments to `call`: a constant of a code object may be any object."""
    kind = _kind_of(old)
    takes_self_alone = old.co_varnames[: old.co_argcount] == ("self",)
    code = (_plain_method if kind == 0 and takes_self_alone else _SHAPES[kind]).__code__
    constants: tuple[Any, ...] = tuple(call if constant == "call" else constant for constant in code.co_consts)
    flags = code.co_flags | (old.co_flags & inspect.CO_ITERABLE_COROUTINE)
    return code.replace(
        co_consts=constants,
        co_freevars=old.co_freevars,
        co_name=old.co_name,
        co_qualname=old.co_qualname,
        co_flags=flags,
    )


# ---------------------------------------------------------------- fields
def _tap_fields(taps: _Taps, struct: type[msgspec.Struct], fields: dict[str, str]) -> None:
    for info in msgspec.structs.fields(struct):
        if info.name in fields:
            setattr(struct, info.name, _field(taps, struct, info, fields[info.name]))


def _field(taps: _Taps, struct: type[msgspec.Struct], info: Any, entry: str) -> Any:
    inner = inspect.getattr_static(struct, info.name)

    def read(value: Any) -> Any:
        given = inner.__get__(value, type(value))
        default = info.default if info.default is not msgspec.NODEFAULT else None
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        return given if _same(given, default) or taps.uses(entry) else default

    return property(read, inner.__set__)


def _tap_pipelines(taps: _Taps, wanted: Callable[[str], bool]) -> None:
    """The keys of a pipeline are the fields of what it becomes."""
    for group, struct in PIPELINE_STRUCTS.items():
        entries = {field: f"pipeline:{group}.{field}" for field in struct.__struct_fields__}
        _tap_fields(taps, struct, {field: entry for field, entry in entries.items() if wanted(entry)})


PIPELINE_STRUCTS: Final[dict[str, type[msgspec.Struct]]] = {
    "pipeline": pipeline_declaration.PipelineConfig,
    "stage": pipeline_declaration.AgentConfig,
    "rule": pipeline_declaration.RoutingRule,
    "edge": pipeline_declaration.EdgeLimit,
    "generation": pipeline_declaration.Generation,
    "retry": pipeline_declaration.RetryPolicy,
}


# ---------------------------------------------------------------- events and errors
def _tap_events(taps: _Taps) -> None:
    say = Listeners._say

    def tapped(self: Listeners, event: Any) -> None:
        if taps.uses(f"event:{event.kind}"):
            say(self, event)

    Listeners._say = tapped  # type: ignore[method-assign]


def _tap_errors(taps: _Taps) -> None:
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.LyraError) and f"error:{value.code}" == taps.off:
            value.code = "switched_off"
    begin = errors.LyraError.__init__

    def tapped(self: Any, *args: Any, **kwargs: Any) -> None:
        taps.uses(f"error:{self.code}")
        begin(self, *args, **kwargs)

    errors.LyraError.__init__ = tapped  # type: ignore[method-assign]


# ---------------------------------------------------------------- the command line
def _tap_commands(taps: _Taps) -> None:
    parse, invoke = click.Command.parse_args, click.Command.invoke

    def tapped_parse(self: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
        typed = {word.partition("=")[0] for word in args}
        rest = parse(self, ctx, args)
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        first = {str(option.name): option for option in reversed(options)}  # the default is its, as click takes it
        for option in options:
            for spelling in typed.intersection((*option.opts, *option.secondary_opts)):
                if not taps.uses(f"flag:{_path(ctx)} {spelling}"):
                    ctx.params[str(option.name)] = _untyped(first[str(option.name)], ctx)
        return rest

    def tapped_invoke(self: click.Command, ctx: click.Context) -> Any:
        return invoke(self, ctx) if taps.uses(f"command:{_path(ctx)}") else None

    click.Command.parse_args = tapped_parse  # type: ignore[method-assign]
    click.Command.invoke = tapped_invoke  # type: ignore[method-assign]


def _untyped(option: click.Option, ctx: click.Context) -> Any:
    """What a command gets for an option that is not typed."""
    default = option.get_default(ctx)
    if isinstance(default, Enum) and default.name == "UNSET":  # how click writes that there is none
        default = None
    return option.type_cast_value(ctx, default)


def _path(ctx: click.Context) -> str:
    """The command as the entries name it: `vega run` is `lyra vega run`."""
    path = ctx.command_path
    return path if path.startswith("lyra") else f"lyra {path}"


# ---------------------------------------------------------------- Vega
def _tap_vega(taps: _Taps) -> None:
    """Settings are taken away once they are checked, before they are compiled."""

    def without(settings: dict[str, Any], prefix: str) -> None:
        for name in list(settings):
            if not taps.uses(f"vega:{prefix}{name}"):
                del settings[name]

    def agent(_: Any, declared: Any) -> None:
        without(declared.fields, "agent ")
        for block, settings in declared.fields.items():
            if isinstance(settings, dict):
                without(settings, f"agent {block}.")

    _after(vega_settings.check_agent_settings, agent)
    _after(vega_settings.check_tool_settings, lambda _, declared: without(declared.settings, "tool "))
    _after(vega_settings.check_supervision, lambda _, settings, __: without(settings, "supervisor "))


def _after(function: Any, then: Callable[..., None]) -> None:
    original = _copy_of(function)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        original(*args, **kwargs)
        then(*args, **kwargs)

    function.__code__ = _calling(call, function.__code__)
