"""The environment of YAML tools, given by the program that loads them and never by a file: workspace, sandbox, network.

A kind of tool (`http`, `command`, `files`) is made of its declaration and of this. It reports what a call needs and
runs it. A tool may do what its file names, and never more than the process that calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.document import Path
from lyra.core.checking.report import Report
from lyra.core.providers import USUAL
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import rights
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.proxy import system_lookup
from lyra.sandbox.sandbox import Sandbox
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.http_guard import Dial
from lyra.tools.yaml.params import Params
from lyra.tools.yaml.template import Template

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


def declared(needs: list[Capability], verb: str) -> list[Capability]:
    """The capabilities of one verb in a file's `needs`."""
    return [need for need in needs if need.name == verb]


def narrowed(own: Grant) -> Grant:
    """The Grant of a call: what the tool's file names, narrowed by the Grant of the process that calls."""
    held = rights.get()
    return own if held is None else held.narrow(own)


def template(value: Any, path: Path, params: Params, report: Report, what: str) -> Template | None:
    """A text of the file as a Template, if each placeholder names a parameter."""
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
