"""Vesper in editors: what `vesper lsp` knows about a node that is being written.

`language` puts it together for the language server in `lyra.lsp` and has the text for hovering. `analysis` is one text,
looked at by the reader and the checker: remarks, the place of each part, what each name stands for. `completion` finds
the key path of a place in a text that may not be YAML yet and says what may be written there. `language` also leads
from a name to its declaration and gives it another. `schema` is the JSON Schema of the files. Start at `language`.
"""
