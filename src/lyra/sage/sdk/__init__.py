"""Sage from Python: `SageAgentSDK`, and `query()` for a single task.

Start with `sdk`, which also has what a run gives back.
"""
