"""The virtual machine: `run(fiber, fuel)` steps a fiber until it asks for an effect, ends or is out of fuel.

`fiber` is the state of one process as plain data, `link` prepares a Program, `vm` has the frequent instructions and
`rare_instructions` the others, `snapshot` saves a fiber. The machine performs nothing; hosts do.
"""
