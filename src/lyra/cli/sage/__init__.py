"""The commands of `sage`: arguments are read and results shown here; `lyra.sage` does the work.

Start with `group`, the table of commands.
"""
