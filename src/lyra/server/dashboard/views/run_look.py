"""RunLook: what the page of a run shows, read from its timeline in one go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lyra.observe.timeline.step import RunStep
from lyra.observe.timeline.timeline import RunTimeline
from lyra.server.dashboard.views.vega_run import VegaRunFacts

VEGA_REFRESH_MS: Final = 1_000


class RunLook(NamedTuple):
    """What the page shows, read in one go. `vega` is there for a durable run of a Vega program."""

    summary: dict[str, Any]
    steps: list[RunStep]
    here: int
    moment: dict[str, Any]
    names: Mapping[str, str]
    vega: VegaRunFacts | None = None

    @property
    def refresh_ms(self) -> int | None:
        """How often a part is read again that no event of this kernel tells of."""
        return None if self.vega is None or self.vega.is_over else VEGA_REFRESH_MS

    @classmethod
    def read(cls, run: RunTimeline, place: int | None, process: str) -> RunLook:
        """The run at a step; None is its last one."""
        here = len(run.steps) if place is None else min(place, len(run.steps))
        return cls(run.summary(), list(run.steps), here, run.moment(here, process or None), run.names)
