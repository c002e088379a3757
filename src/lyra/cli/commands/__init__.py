"""The groups of the `lyra` command other than `demo` and `vega`, one module each.

A module parses options, calls the library and prints through `lyra.cli.render`; it decides nothing itself.
`lyra.cli.app` lists the commands and imports a module when its command is called. Start with `store`.
"""
