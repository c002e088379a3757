"""Every entry of the surface, by kind, from the tables and signatures that the code itself uses.

An entry that is added to the code appears here by itself. `KINDS` is the order of the page; `Entry.id` is how
`claims.toml` names one. Python's entries are what the `__all__` of the public packages names: classes, functions, the
public methods of classes, and their parameters. Left out is what no caller is offered: the moments of which the kernel
tells its subsystems, and what `inside.toml` names, each with its reason.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

import lyra
from lyra import errors
from lyra.agents.declaration.agent import AgentDeclaration
from lyra.cli.app import COMMANDS, root
from lyra.config import KEYS, TABLES
from lyra.core import event
from lyra.core.rights.capability import VERBS
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.pipelines import routing as pipeline_keys
from lyra.vega.bytecode.opcodes import OPCODES
from lyra.vega.checker import settings as vega_settings

__all__ = ["KINDS", "PACKAGES", "Entry", "entries", "inside", "tapped_callables"]

PACKAGES: Final = (
    "lyra",
    "lyra.agents",
    "lyra.config",
    "lyra.errors",
    "lyra.kernel",
    "lyra.mcp",
    "lyra.models",
    "lyra.observe",
    "lyra.sandbox",
    "lyra.store",
    "lyra.testing",
    "lyra.tools",
    "lyra.vega",
)
_VARIABLE: Final = re.compile(r"\b_?LYRA_[A-Z_]*[A-Z]\b")
_SOURCE: Final = Path(lyra.__file__).parent
_INSIDE: Final = Path(__file__).with_name("inside.toml")


class Entry(NamedTuple):
    """One part of the surface. `words` are what a test that shows it has to use: each of them, of an error one."""

    kind: str
    name: str
    words: tuple[str, ...]
    position: int | None = None  # of a parameter that may be given without its name
    owner: str = ""  # the class of a method
    home: str = ""  # the module of what is called

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.name}"


def entries() -> list[Entry]:
    """The whole surface, in the order of `KINDS`."""
    return [entry for list_entries in KINDS.values() for entry in list_entries()]


# ---------------------------------------------------------------- settings
def _config() -> Iterator[Entry]:
    return (Entry("config", name, (name,)) for name in KEYS)


def _columns(kind: str, section: str) -> Callable[[], Iterator[Entry]]:
    def columns() -> Iterator[Entry]:
        return (Entry(kind, f"{section}.{field}", (field,)) for field in TABLES[section].columns)

    return columns


def _variables() -> Iterator[Entry]:
    """`LYRA_…` of every key, and those that the source names itself."""
    names = {key.variable for key in KEYS.values()}
    for path in _SOURCE.rglob("*.py"):
        names.update(_VARIABLE.findall(path.read_text(encoding="utf-8")))
    return (Entry("variable", name, (name,)) for name in sorted(names))


# ---------------------------------------------------------------- the command line
def _command_tree(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
    ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield ctx
    if isinstance(command, click.Group):
        for member in command.list_commands(ctx):
            if _is_shared(command, member):
                continue
            inner_command = command.get_command(ctx, member)
            if inner_command is not None:
                yield from _command_tree(inner_command, member, ctx)


def _is_shared(group: click.Group, member: str) -> bool:
    """Whether a group has a command of `lyra` itself under its own name, too: `sage doctor` is `lyra doctor`."""
    row = getattr(group, "lazy", {}).get(member)
    if group.name == root.name or row is None or not row.module.startswith("lyra.cli.commands."):
        return False
    return row[:2] in {own[:2] for own in COMMANDS.values()}


def _typed(path: str) -> tuple[str, ...]:
    """What is typed after the program's name: `vega run` and `lyra run` are one command."""
    _, *words = path.split()
    if words[:2] == ["sage", "start"]:  # both words may be left out
        return tuple(words[2:])
    return tuple(words[1:] if len(words) > 1 and words[0] in ("vega", "sage") else words)


def _commands() -> Iterator[Entry]:
    for ctx in _command_tree(root, "lyra", None):
        yield Entry("command", ctx.command_path, _typed(ctx.command_path))


def _flags() -> Iterator[Entry]:
    for ctx in _command_tree(root, "lyra", None):
        for option in (param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)):
            if option.hidden or "--help" in option.opts:
                continue
            for spelling in (*option.opts, *option.secondary_opts):
                yield Entry("flag", f"{ctx.command_path} {spelling}", (*_typed(ctx.command_path), spelling))


# ---------------------------------------------------------------- Python
def _public() -> Iterator[tuple[str, Any]]:
    """Each public name with its package, once: what two packages give is the first one's."""
    seen: set[int] = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)) or id(value) in seen:
                continue
            if f"{package}.{name}" in inside():
                continue
            seen.add(id(value))
            yield f"{package}.{name}", value


def _callables() -> Iterator[tuple[str, str, str, Any]]:
    """The full name, the class, the short name and the function of everything public that is called."""
    seen: set[int] = set()
    for full, value in _public():
        short = full.rpartition(".")[2]
        yield full, "", short, value
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        for name, member in inspect.getmembers_static(value):
            if name.startswith(("_", "test_")):  # those of StoreConformance are tests themselves
                continue
            if (issubclass(value, Subsystem) and name in vars(Subsystem)) or f"{full}.{name}" in inside():
                continue
            if getattr(value, "_is_protocol", False) or getattr(member, "__isabstractmethod__", False):
                continue  # it does nothing by itself: what it promises is shown by those that implement it
            function = inspect.unwrap(getattr(member, "__func__", member))
            if isinstance(function, property):
                function = function.fget
            if not inspect.isfunction(function) or not function.__module__.startswith("lyra.") or id(function) in seen:
                continue
            seen.add(id(function))
            yield f"{full}.{name}", short, name, member


@cache
def inside() -> dict[str, str]:
    """Names that Lyra's own layers use, and no caller outside is offered, each with the reason."""
    table: dict[str, str] = tomllib.loads(_INSIDE.read_text(encoding="utf-8"))
    return table


def tapped_callables() -> Iterator[tuple[str, Any]]:
    """The full name and the value of everything public that is called, as it stands in its class."""
    return ((full, value) for full, _, _, value in _callables())


def _names() -> Iterator[Entry]:
    for full, owner, short, value in _callables():
        yield Entry("name", full, (short,), owner=owner, home=_home(value))


def _home(value: Any) -> str:
    function = inspect.unwrap(getattr(value, "__func__", value))
    return str(getattr(function.fget if isinstance(function, property) else function, "__module__", ""))


def _parameters() -> Iterator[Entry]:
    for full, owner, short, value in _callables():
        if value is lyra.Agent:
            continue  # its settings are a kind of their own
        if inspect.isclass(value) and issubclass(value, Enum):
            continue  # its parameters are those of Python's Enum
        function = inspect.unwrap(getattr(value, "__func__", value))
        if isinstance(function, property) or (inspect.isclass(function) and issubclass(function, BaseException)):
            continue
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:
            continue
        names = [parameter for parameter in parameters if parameter.name not in ("self", "cls")]
        for position, parameter in enumerate(names):
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name.startswith("_"):
                continue
            if f"{full}({parameter.name})" in inside():
                continue
            by_position = None if parameter.kind is parameter.KEYWORD_ONLY else position
            yield Entry(
                "parameter", f"{full}({parameter.name})", (short, parameter.name), by_position, owner, _home(value)
            )


def _agent() -> Iterator[Entry]:
    names = inspect.signature(AgentDeclaration).parameters
    return (Entry("agent", name, ("Agent", name)) for name in names if name not in ("self", "name"))


# ---------------------------------------------------------------- Vega
def _vega_fields() -> Iterator[Entry]:
    for name in vega_settings.AGENT_FIELDS:
        yield Entry("vega", f"agent {name}", ("agent", name))
    for block, fields in vega_settings.BLOCKS.items():
        for name in fields:
            yield Entry("vega", f"agent {block}.{name}", (block, name))
    for name in vega_settings.TOOL_SETTINGS:
        yield Entry("vega", f"tool {name}", ("tool", name))
    for name in vega_settings.SUPERVISION:
        yield Entry("vega", f"supervisor {name}", (name,))


def _opcodes() -> Iterator[Entry]:
    return (Entry("opcode", row.name, (row.name,)) for row in OPCODES.values())


# ---------------------------------------------------------------- the kernel
def _verbs() -> Iterator[Entry]:
    return (Entry("verb", name, (name,)) for name in VERBS)


def _events() -> Iterator[Entry]:
    return (Entry("event", name, (name,)) for name in event.KINDS)


def _errors() -> Iterator[Entry]:
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.LyraError)
    ]
    names = {value.code: value.__name__ for value in reversed(classes)}
    return (Entry("error", code, (code, names[code])) for code in errors.CODES)


_PIPELINE: Final = {
    "pipeline": pipeline_keys.PIPELINE_KEYS,
    "stage": pipeline_keys.STAGE_KEYS,
    "rule": pipeline_keys.RULE_KEYS,
    "edge": pipeline_keys.EDGE_KEYS,
    "generation": pipeline_keys.GENERATION_KEYS,
    "retry": pipeline_keys.RETRY_KEYS,
    "state": pipeline_keys.STATE_KEYS,
}


def _pipeline() -> Iterator[Entry]:
    for group, names in _PIPELINE.items():
        for name in names:
            yield Entry("pipeline", f"{group}.{name}", (name,))


KINDS: Final[dict[str, Callable[[], Iterator[Entry]]]] = {
    "config": _config,
    "provider": _columns("provider", "providers"),
    "price": _columns("price", "prices"),
    "limit": _columns("limit", "limits"),
    "mcp": _columns("mcp", "mcp.servers"),
    "diagnostic": _columns("diagnostic", "diagnostics"),
    "variable": _variables,
    "command": _commands,
    "flag": _flags,
    "name": _names,
    "parameter": _parameters,
    "agent": _agent,
    "vega": _vega_fields,
    "opcode": _opcodes,
    "verb": _verbs,
    "event": _events,
    "error": _errors,
    "pipeline": _pipeline,
}
