"""The `vega` command, which is also `lyra vega`: one module for each command or small group of commands.

`group` lists them. `files` reads programs and shows mistakes, `durable` opens stores of runs; both serve the commands.
The language itself is in `lyra.vega`.
"""
