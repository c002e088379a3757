"""Sage from Python: `SageAgentSDK`, and `query()` for a single task.

Start with `sdk`; `background` has what a run gives back.
"""
