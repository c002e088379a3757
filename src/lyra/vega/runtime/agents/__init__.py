"""Agents of Vega programs as kernel processes, and the calls to them.

`plan` makes the agent of a declaration and its tools; `undeclared_tools` has those that a host adds. `calls` is
`p <- message`, `streams` is `p <~ message`; `slot` and `setting_versions` keep calls exact across restarts.
"""
