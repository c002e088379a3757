"""Agents of Vega programs as kernel processes, and the calls to them.

`plan` makes the agent of a declaration and its tools, and keeps the settings of earlier calls; `undeclared_tools` has
the tools that a host adds. `calls` is `p <- message`, `streams` is `p <~ message`; `slot` is where callers find one.
"""
