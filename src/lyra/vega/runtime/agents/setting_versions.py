"""Settings of agents that a migration changed: calls that were made keep theirs, calls to come have the new ones.

A SettingChange says of one agent which settings were replaced by which. The World gives the newest plan of an agent,
which knows the older ones by the names that their calls have in the journal: `agent:NAME` at first, `agent:NAME~1`
after the first change. A replay that comes to a call takes the plan that the call was made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.kernel.process.call_keys import upcoming
from lyra.vega.machine.snapshot import value_from_data, value_to_data

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.agents.plan import AgentPlan


# What decides how a call is made and nothing else: what came of the calls before is in the journal.
HARMLESS: Final = (
    *("model", "system", "temperature", "max_tokens", "min_tokens", "fit_budget", "timeout", "budget", "priority"),
    *("retry", "rate_limit", "circuit_breaker"),
)


class SettingChange(NamedTuple):
    """Settings of one agent as they were and as they are; one that is absent was, or is, not said."""

    agent: str
    old: dict[str, Any]
    new: dict[str, Any]

    def to_data(self) -> list[Any]:
        return [self.agent, value_to_data(self.old), value_to_data(self.new)]

    @classmethod
    def from_data(cls, data: list[Any]) -> SettingChange:
        agent, old, new = data
        return cls(str(agent), value_from_data(old), value_from_data(new))

    @property
    def keys(self) -> list[str]:
        return sorted({*self.old, *self.new})

    def applied(self, settings: dict[str, Any]) -> dict[str, Any]:
        return _replaced(settings, self.old, self.new)

    def reverted(self, settings: dict[str, Any]) -> dict[str, Any]:
        return _replaced(settings, self.new, self.old)


def _replaced(settings: dict[str, Any], was: Mapping[str, Any], becomes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with one part in place of another; as they are where they do not have that part."""
    keys = {*was, *becomes}
    if any(_part(settings, key) != _part(was, key) for key in keys):
        return settings
    kept = {key: becomes.get(key, value) for key, value in settings.items() if key not in keys or key in becomes}
    return {**kept, **becomes}


def _part(settings: Mapping[str, Any], key: str) -> Any:
    return repr(value_to_data(settings[key])) if key in settings else None


def is_alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two settings are the same, in whatever order they were said."""
    return left.keys() == right.keys() and all(_part(left, key) == _part(right, key) for key in left)


def difference(agent: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> SettingChange:
    keys = [key for key in {**old, **new} if _part(old, key) != _part(new, key)]
    return SettingChange(
        agent, {key: old[key] for key in keys if key in old}, {key: new[key] for key in keys if key in new}
    )


class SettingVersions:
    """All changes of settings in a run, in order."""

    __slots__ = ("_by_agent",)

    def __init__(self, setting_changes: Iterable[SettingChange] = ()) -> None:
        self._by_agent: dict[str, list[SettingChange]] = {}
        for setting_change in setting_changes:
            self._by_agent.setdefault(setting_change.agent, []).append(setting_change)

    def __contains__(self, agent: str) -> bool:
        return agent in self._by_agent

    def versions(self, agent: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """An agent's settings before each change and after the last, oldest first, from those of any version."""
        setting_changes = self._by_agent.get(agent, [])
        for setting_change in setting_changes:
            settings = setting_change.applied(settings)
        versions = [settings]
        for setting_change in reversed(setting_changes):
            versions.append(setting_change.reverted(versions[-1]))
        return versions[::-1]


def name_plan(plan: AgentPlan, version: int) -> None:
    """Calls with the settings of a later version go by a name of their own."""
    if version:
        plan.program.__qualname__ = f"{plan.name}~{version}"


def plan_of_call(process: Process, plan: AgentPlan) -> AgentPlan:
    """The plan for the call that a process comes to: of one in its journal, the plan that it was made with."""
    entry = upcoming(process) if plan.older else None
    return plan if entry is None or entry.kind != "spawn" else plan.older.get(entry.name, plan)
