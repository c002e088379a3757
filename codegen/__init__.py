"""Writes files that are kept in version control from tables in `lyra`; not in the wheel. Tests compare the files.

vega_machine     src/lyra/vega/machine/vm.py, from `vm_template` and the table of opcodes
vega_extension   the grammar and the snippets in editors/vscode
"""
