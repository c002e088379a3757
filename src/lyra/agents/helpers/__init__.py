"""Agents that work for another agent: `delegate` makes an agent a tool, `task` starts a sub-agent with a window of its
own.
"""
