"""The `lyra` command: lazy groups over the SDK, and how results and errors look in a terminal.

`main` is the way in and the only place that turns an error into an exit code; `app` is the table of commands;
`render` is how anything is printed; each other module is one group and is imported only when somebody calls
it, because start-up is a feature. Nothing here decides anything that a program could not: a command parses,
calls the SDK and prints. Results go to stdout, everything else to stderr. `reference` writes docs/reference
from the same tables.
"""
