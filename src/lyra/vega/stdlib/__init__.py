"""The standard library: one table of every module's functions, and the modules that do the pure ones.

`LIBRARY` says for each `module::name` which parameters it has, how many must be given, and how it is done: `pure`
(a Python function, here in this folder), `vega` (Vega source in `table`, for those that call a lambda: they can be
interrupted and saved like any program), or `effect` (the VM hands it out; the host answers). Checker, compiler,
VM, completion and reference docs all read this table.
"""

from lyra.vega.stdlib.table import LIBRARY, METHODS, LibraryEntry, entry

__all__ = ["LIBRARY", "METHODS", "LibraryEntry", "entry"]
