"""Agents from a shell: one run with the built-in tools, without a terminal or a person to ask.

Start with `headless`, which runs the agent and tells what happens. `options` are what a run is asked for, `setup` is
what its agent may touch.
"""

from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions

__all__ = ["Headless", "HeadlessOptions"]
