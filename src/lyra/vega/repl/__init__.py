"""The interactive session of `vega repl`: declarations and variables that stay between lines.

Start with `session`, which runs one line after another; `interactive` is its terminal.
"""
