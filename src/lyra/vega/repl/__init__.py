"""The interactive session of `vega repl`: declarations and variables that stay between lines."""
