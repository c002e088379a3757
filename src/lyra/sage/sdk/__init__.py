"""Sage from Python: `SageAgentSDK`, and `query()` for a single task.

Start with `sdk`; `result` has what a run gives back.
"""
