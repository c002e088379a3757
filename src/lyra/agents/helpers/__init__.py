"""Agents that work for another agent: `task` makes an agent a tool and starts sub-agents, `stage` runs an agent as
a stage of pipelines.
"""
