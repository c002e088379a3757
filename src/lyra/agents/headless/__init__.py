"""Agents from a shell: one run with the built-in tools, without a terminal or a person to ask.

Start with `headless`; `options` are what a run is asked for, `setup` what its agent may touch, `lines` what it tells.
"""

from lyra.agents.headless.headless import Headless, HeadlessOptions

__all__ = ["Headless", "HeadlessOptions"]
