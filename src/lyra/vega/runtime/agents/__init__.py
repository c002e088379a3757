"""Agents of Vega programs as kernel processes, and the calls to them.

`agent` is the process, `calls` is `p <- message`, `streams` is `p <~ message`; `tools` and `undeclared_tools` are what
an agent may call; `deadlines`, `refused_calls` and `setting_versions` keep calls exact across restarts.
"""
