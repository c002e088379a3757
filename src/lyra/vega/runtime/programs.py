"""The kernel programs of a run, as its World is given them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class ProcessPrograms(NamedTuple):
    """The kernel programs that a run's processes run: `driver.vega_process` and `agents.agent.agent_front`. The World
    is given them, because the handlers that these programs call start further processes with the same programs."""

    process: Callable[..., Any]
    agent: Callable[..., Any]
