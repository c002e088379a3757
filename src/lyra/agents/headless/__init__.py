"""Agents from a shell: one run with the built-in tools, without a terminal or a person to ask."""

from lyra.agents.headless.headless import Headless, HeadlessOptions

__all__ = ["Headless", "HeadlessOptions"]
