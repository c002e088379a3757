"""How the names of Lyra's packages are found: at their first use, and for good under the paths that they once had.

`on_first_use` makes the `__getattr__` of a package that imports its modules when one of their names is first used.
`HOMES` maps an old path to the module's home of today, `RENAMED` a package to its old names and those of today. The
finder comes last on `sys.meta_path`: Python asks it only for modules that do not exist, so it costs other imports
nothing. This module imports nothing but `sys`: it is loaded before the command line can catch Ctrl-C.
"""

import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HOMES = {
    "lyra.core.commands.ordinary": "lyra.core.commands.programs",
    "lyra.core.policies.restart": "lyra.core.policies.policy",
    "lyra.sage.extensions.builtin_agents": "lyra.sage.extensions.agent_files",
    "lyra.agents.session.time_won": "lyra.agents.session.early_call",
    "lyra.agents.task": "lyra.agents.helpers.task",
    "lyra.core.capability": "lyra.core.rights.capability",
    "lyra.core.program_options": "lyra.core.commands.options",
    "lyra.core.schema": "lyra.core.checking.schema",
    "lyra.kernel.pipeline_files": "lyra.kernel.pipelines.files",
    "lyra.tools.dynamic": "lyra.tools.yaml",
    "lyra.tools.layers": "lyra.tools.wrapped",
    "lyra.vega.runs": "lyra.vega.durable.runs",
    "lyra.vesper.runtime.http_entry": "lyra.vesper.runtime.entries",
    "lyra.vesper.runtime.scheduled_entry": "lyra.vesper.runtime.entries",
}

RENAMED = {
    "lyra.config": {
        "AgentConfig": "AgentCommandConfig",
        "Cell": "TableCell",
        "Key": "SettingKey",
        "Origin": "SettingOrigin",
        "Row": "SettingRow",
        "Table": "SettingTable",
    },
    "lyra.tools.permissions": {"Decision": "PermissionDecision"},
    "lyra.tools.yaml": {"Around": "ToolEnvironment"},
}


def on_first_use(package: str, homes: dict[str, str]) -> "Callable[[str], Any]":
    """Return the `__getattr__` of a package; `homes` maps each of its modules to the names that it has, in one text,
    its own among them where it is public itself."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def look_up(name: str) -> "Any":
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        home = import_module(module if module.startswith("lyra.") else f"{package}.{module}")
        value = home if name == module else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up


def look_up_renamed(package: str, name: str) -> "Any":
    """Return the object of a package that once had this name: the body of the package's `__getattr__`."""
    today = RENAMED[package].get(name)
    if today is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(sys.modules[package], today)


class OldPaths:
    """A finder and loader that gives the module of today under its old path."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":  # noqa: ARG002 - importlib's signature
        if name not in HOMES:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type]  # importlib takes any object with these methods

    def create_module(self, spec: "ModuleSpec") -> None:
        """Let importlib make the module that `exec_module` replaces."""

    def exec_module(self, module: "ModuleType") -> None:
        from importlib import import_module

        sys.modules[module.__name__] = import_module(HOMES[module.__name__])


def install() -> None:
    """Put the finder behind those of Python."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(OldPaths())
