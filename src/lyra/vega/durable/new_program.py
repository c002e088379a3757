"""Another program for the next execution of a durable run; `lyra.vega.migrate` decides whether that is safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lyra.vega.bytecode.file import content_hash
from lyra.vega.bytecode.program import Program
from lyra.vega.runtime.agents.setting_versions import SettingChange


class ProgramMigration:
    """Another program for a run: fitted to the one before, with what changed in words. `done` is called once it is in
    the store."""

    def __init__(self, before: Program, program: Program, sources: Mapping[str, str]) -> None:
        self.program = program
        self.sources = dict(sources)
        self.setting_changes: list[SettingChange] = []
        self.changes: list[str] = []
        self.done: Callable[[], object] = lambda: None
        self._hash = content_hash(program)
        self._globals = [len(before.globals), len(program.globals)]

    def to_data(self) -> dict[str, Any]:
        return {
            "hash": self._hash,
            "globals": self._globals,
            "renewals": [setting_change.to_data() for setting_change in self.setting_changes],
            "changes": self.changes,
        }
