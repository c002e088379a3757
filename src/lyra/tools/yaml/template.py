"""Templates: texts with placeholders for values, `{{name}}` or `{{.name}}`, found when a file is read and never later.

A value is put into one place of a structure that exists already (an argument, a segment of a path, a value of a query,
a value of JSON), in the form that this place needs. It is never put into a text that is read afterwards, so no value
can become more than a value, and a value that looks like a template is not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from lyra.core.checking.check import Report, did_you_mean
from lyra.core.checking.document import Path
from lyra.core.providers import USUAL
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import rights
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.proxy import system_lookup
from lyra.sandbox.sandbox import Sandbox
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.http_guard import Dial
from lyra.tools.yaml.params import Params

_SLOT: Final = re.compile(r"\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class Template:
    """`pieces` are texts and, at odd indexes, names of parameters."""

    __slots__ = ("pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces = tuple(_SLOT.split(text))
        if any("{{" in piece or "}}" in piece for piece in self.pieces[::2]):
            raise ValueError("a template is {{name}}: the name of a parameter in two braces")

    @property
    def names(self) -> tuple[str, ...]:
        return self.pieces[1::2]

    @property
    def literal(self) -> str:
        """The text around the placeholders."""
        return "".join(self.pieces[::2])

    @property
    def lone(self) -> str | None:
        """The name, if the template is one placeholder and nothing else."""
        return self.pieces[1] if len(self.pieces) == 3 and not self.literal else None

    @property
    def begins_with_value(self) -> bool:
        return len(self.pieces) > 1 and not self.pieces[0]

    def fill(self, values: Mapping[str, Any], form: Callable[[str], str] = str) -> str | None:
        """Return the text, each value through `form`; None where a value is missing: then the whole text is left
        out."""
        parts: list[str] = []
        for index, piece in enumerate(self.pieces):
            if index % 2 == 0:
                parts.append(piece)
            elif values.get(piece) is None:
                return None
            else:
                parts.append(form(as_text(values[piece])))
        return "".join(parts)


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()  # true, 3, 1.5; lists and mappings as JSON


_LEFT_OUT: Final = object()


def bind(shape: Any, values: Mapping[str, Any]) -> Any:
    """Fill in the Templates of a structure. One that is only a placeholder becomes the value itself, with its type. A
    key or an item whose value is missing is left out."""
    bound = _bind(shape, values)
    return None if bound is _LEFT_OUT else bound


def _bind(shape: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(shape, Template):
        if shape.lone is not None:
            value = values.get(shape.lone)
            return _LEFT_OUT if value is None else value
        text = shape.fill(values)
        return _LEFT_OUT if text is None else text
    if isinstance(shape, dict):
        bound = {key: _bind(item, values) for key, item in shape.items()}
        return {key: item for key, item in bound.items() if item is not _LEFT_OUT}
    if isinstance(shape, list):
        return [item for item in (_bind(item, values) for item in shape) if item is not _LEFT_OUT]
    return shape


# ---------------------------------------------------------------- environment
# The environment of YAML tools, given by the program that loads them and never by a file: workspace, sandbox,
# network.

_PROVIDER_KEYS = frozenset(name for usual in USUAL.values() for name in usual.key)


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What every tool of a source gets. `secrets`: variables that headers may name (None: any but the keys of model
    providers); `inside`: hosts of this network (`host:port`) that may be reached although they are not public."""

    workspace: Workspace
    sandbox: Sandbox = field(default_factory=Sandbox)
    secrets: Collection[str] | None = None
    inside: Collection[str] = ()
    env: Mapping[str, str] | None = None
    lookup: Lookup = system_lookup
    dial: Dial | None = None

    def may_use(self, variable: str) -> bool:
        return variable not in _PROVIDER_KEYS if self.secrets is None else variable in self.secrets


class DeclaredTool(NamedTuple):
    """An implementation as a file has it, where it stands, and what it is read with."""

    given: dict[str, Any]
    path: Path
    params: Params
    report: Report
    environment: ToolEnvironment
    timeout_s: float
    needs: list[Capability]


class ToolKind(Protocol):
    """One implementation of a tool."""

    @property
    def idempotent(self) -> bool: ...

    @property
    def untrusted(self) -> bool: ...

    @property
    def rights(self) -> tuple[Capability, ...]:
        """All capabilities that any call may need, except for those to the workspace and to run commands."""

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]: ...

    async def run(self, values: Mapping[str, Any]) -> str: ...


def select_needs(needs: list[Capability], verb: str) -> list[Capability]:
    """Return the capabilities of one verb in a file's `needs`."""
    return [need for need in needs if need.name == verb]


def narrow_grant(own: Grant) -> Grant:
    """Return the Grant of a call: what the tool's file names, narrowed by the Grant of the process that calls."""
    held = rights.get()
    return own if held is None else held.narrow(own)


def template(value: Any, path: Path, params: Params, report: Report, what: str) -> Template | None:
    """Return a text of the file as a Template, if each placeholder names a parameter."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        report.add(path, f"{what} is a text, not {value!r}")
        return None
    try:
        parsed = Template(value if isinstance(value, str) else str(value))
    except ValueError as error:
        report.add(path, f"{what}: {error}")
        return None
    unknown = [name for name in dict.fromkeys(parsed.names) if name not in params]
    for name in unknown:
        near = did_you_mean(name, params.names)
        hint = f"did you mean {near!r}?" if near else f"params has: {', '.join(params.names) or 'none'}"
        report.add(path, f"{what} names the parameter {name!r}, which is not declared", hint)
    return None if unknown else parsed
