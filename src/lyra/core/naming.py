"""The names of functions and classes in journals: `module:function`, or a fixed name for those of Lyra.

A module run as a script is `__main__` to Python; in a journal it has the name it would be imported by, so that a
process started by `python shop.py` resumes under `import shop` or `python -m shop`. Functions and classes of Lyra
itself have a fixed name (`lyra:supervise`) that does not depend on their file, and that no function of a user can have.
`OLD_NAMES` is the table of these, each with the names that earlier versions wrote: a store with an old name is read as
if it had the fixed one. This module looks names up and never imports anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

SUPERVISE: Final = "lyra:supervise"
PIPELINE: Final = "lyra:pipeline"
VEGA_PROCESS: Final = "lyra:vega.process"
VEGA_AGENT: Final = "lyra:vega.agent"
VEGA_RUN: Final = "lyra:vega.run"
VESPER_NODE: Final = "lyra:vesper.node"
WEBHOOK: Final = "lyra:webhook"
INCOMING_HOOK: Final = "lyra:webhook.incoming"
A2A_TASK: Final = "lyra:a2a.task"
A2A_TURN: Final = "lyra:a2a.turn"
A2A_PUSH: Final = "lyra:a2a.push"
GATEWAY_KEY: Final = "lyra:gateway.key"
PORTION: Final = "budget.portion"  # in rows and Events: what was spent on another shard of what this one lent

# Fixed name → the names that earlier versions wrote. Rows are added, never changed: old journals are read for ever.
OLD_NAMES: Final[dict[str, tuple[str, ...]]] = {
    # programs
    SUPERVISE: ("lyra.kernel.supervisor:supervise",),
    PIPELINE: ("lyra.kernel.pipeline_runner:run_pipeline",),
    VEGA_PROCESS: ("lyra.vega.runtime.driver:vega_process", "vega:process"),
    VEGA_AGENT: ("lyra.vega.runtime.agents:agent_front", "vega:agent"),
    VEGA_RUN: (),
    VESPER_NODE: (),
    WEBHOOK: (),
    INCOMING_HOOK: (),
    A2A_TASK: (),
    A2A_TURN: (),
    A2A_PUSH: (),
    GATEWAY_KEY: (),
    "lyra:vega.repl": ("lyra.vega.runtime.interactive:_pieces", "vega:repl"),
    "lyra:demo.lead": ("lyra.cli.demo_team:lead",),
    "lyra:demo.web.reviewer": (),
    "lyra:demo.web.summary": (),
    "lyra:demo.web.refunds": (),
    "lyra:demo.web.change": (),
    "lyra:demo.web.release": (),
    "lyra:demo.reviewer": ("lyra.cli.demo_team:reviewer",),
    "lyra:demo.rules": ("lyra.cli.demo_team:rules",),
    "lyra:demo.session": ("lyra.cli.demo_team:session",),
    "lyra:demo.index": ("lyra.cli.demo_team:index",),
    # functions that a program may hand to `ctx.do`
    "lyra:AgentProcess.send": ("lyra.agents.process:AgentProcess.send",),
    "lyra:AgentProcess.stop": ("lyra.agents.process:AgentProcess.stop",),
    "lyra:Handle.wait": ("lyra.kernel.handle:Handle.wait",),
    "lyra:Kernel.dispatch": ("lyra.kernel.requests:Requests.dispatch",),
    "lyra:Kernel.dispatch_inference": ("lyra.kernel.requests:Requests.dispatch_inference",),
    "lyra:CommBus.publish": ("lyra.kernel.bus:CommBus.publish",),
    "lyra:CommBus.send": ("lyra.kernel.bus:CommBus.send",),
    "lyra:CommBus.query": ("lyra.kernel.bus:CommBus.query",),
    # exceptions that are no LyraErrors, which go by their code
    "lyra:vega.Fault": ("lyra.vega.values:Fault", "vega:Fault"),
    "lyra:vesper.PathBroke": (),
    "lyra:mcp.Failed": ("lyra.mcp.state:Failed",),
    "lyra:mcp.AuthRequired": ("lyra.mcp.state:AuthRequired",),
    "lyra:demo.ServiceError": ("lyra.cli.demo_service:ServiceError",),
    "lyra:demo.SessionLost": ("lyra.cli.demo_service:SessionLost",),
}
_FIXED: Final = {old: name for name, olds in OLD_NAMES.items() for old in olds}
_OWN: Final = ("lyra:", "lyra.")  # how the names of Lyra itself begin; no module of a user has such a name
_AGENT: Final = "agent"  # the module of the programs of agents
STAGE_PROGRAM: Final = "/stage"  # ends the name of the program that runs an agent as a stage of pipelines
_named: dict[str, Any] = {}  # fixed name → function or class, of the modules imported so far


def give_name(name: str) -> Callable[[T], T]:
    """Decorate a function or a class of Lyra with its fixed name, which is in `OLD_NAMES`."""
    assert name in OLD_NAMES, name

    def give(thing: T) -> T:
        thing.__lyra_name__ = name  # type: ignore[attr-defined]
        _named[name] = thing
        return thing

    return give


def find_thing(name: str) -> Any:
    """Return the function or class with this fixed or old name; None while its module is not imported."""
    return _named.get(_FIXED.get(name, name))


def to_fixed_name(name: str) -> str:
    """Return the fixed name for an old one; any other name unchanged."""
    return _FIXED.get(name, name)


def old_names(name: str) -> tuple[str, ...]:
    """Return the names that earlier versions wrote for a fixed name."""
    return OLD_NAMES.get(name, ())


def is_own_name(name: str) -> bool:
    """Return whether a name belongs to Lyra itself, in this version or another."""
    return name.startswith(_OWN) or name in _FIXED


def get_qualified_name(function: Any) -> str:
    """Return the fixed name, else `module:qualname`, of a function, a class or (by its class) an object that can be
    called."""
    inner = getattr(function, "func", function)  # functools.partial
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    fixed = getattr(inner, "__dict__", {}).get("__lyra_name__")  # not inherited: a subclass has another name
    if fixed is not None:
        return str(fixed)
    module = inner.__module__
    return f"{main_name() if module == '__main__' else module}:{inner.__qualname__}"


def program_names(name: str) -> tuple[str, ...]:
    """Return the names by which a right may mean a program: as a journal has it, and without its module. An agent's
    program goes by the agent's name, in every version of its settings."""
    module, _, own = name.partition(":")
    if not own:
        return (name,)
    if module == _AGENT:
        own = own.removesuffix(STAGE_PROGRAM)
        agent, _, version = own.rpartition("~")
        return (own, agent, name) if version.isdecimal() and agent else (own, name)
    last = own.rpartition(".")[2]
    return (own, name) if last == own else (own, last, name)


def main_name() -> str:
    """Return the name by which the main module would be imported; `__main__` where there is none."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix(".__main__"))
    file = getattr(main, "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"
