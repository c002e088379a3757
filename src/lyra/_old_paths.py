"""Import paths and names that were public before they changed; each stays importable for good.

`HOMES` maps an old path to the module's home of today, `RENAMED` a package to its old names and those of today. The
finder comes last on `sys.meta_path`: Python asks it only for modules that do not exist, so it costs other imports
nothing. New code imports from the packages themselves. This module imports nothing but `sys`: it is loaded before the
command line can catch Ctrl-C.
"""

import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing
if TYPE_CHECKING:
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


def renamed(package: str, name: str) -> "Any":
    """The object of a package that once had this name: the body of the package's `__getattr__`."""
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
