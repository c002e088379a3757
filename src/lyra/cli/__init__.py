"""The `lyra` command: lazy groups of commands over the library, and how results and errors look in a terminal.

`main` is the entry point and the only place that turns an error into an exit code; `app` is the table of commands;
`render` prints. The folders hold the commands and are imported when their command is called, because start-up time is
a feature. A command parses, calls the library and prints; it decides nothing that a program could not. Results go to
stdout, everything else to stderr. `python -m verify reference` writes docs/reference from the same tables.
"""
