"""Compiles a checked tree to register code.

`compiler` makes a Program, `emitter` holds the code of one function; each other module compiles one kind of statement
or expression. Which calls may start early is decided in `lyra.vega.plan`.
"""
