"""Agents from a shell: one run with the built-in tools, without a terminal or a person to ask.

Start with `headless`; `setup` makes the agent from the options and the configuration.
"""

from lyra.agents.headless.headless import Headless, HeadlessOptions

__all__ = ["Headless", "HeadlessOptions"]
