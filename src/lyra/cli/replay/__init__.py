"""`lyra replay` and `lyra diff`: time travel through the runs of durable agents and Python programs.

Start with `command`, which has what can be said at its prompt and how steps and moments look; `fork` opens the store,
loads the file that declares the programs, tells their variables and makes forks.
"""
