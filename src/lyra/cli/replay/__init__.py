"""`lyra replay` and `lyra diff`: time travel through the runs of durable agents and Python programs.

Start with `command`. `prompt` has what can be said at its prompt, `words` how steps and moments look, `opened` opens
the store, `fork` makes forks, `variables` tells those of programs, `program_file` loads the file that declares them,
and `diff` compares two runs.
"""
