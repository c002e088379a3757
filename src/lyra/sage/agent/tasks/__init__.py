"""The sub-agents and background commands of a session: processes that are listed, watched, answered and resumed.

Start with `task_list`; `tools` is what a model uses, `runs` what happens to them, `state` what a store remembers.
"""
