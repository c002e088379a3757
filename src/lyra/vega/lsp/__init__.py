"""Editor support: what `vega lsp` knows about a program while somebody writes it.

The core is functions of a text and an offset that give plain data: `document` (texts, changes, positions), `analysis`
(one text: its tree, names, kinds), `symbols` (which name means what), `project` (files that import each other),
`diagnostics`, `hover`, `completion`, `signature`, `navigation`, `rename`, `tokens`, `outline`, `actions`, `layout`,
`lens`. Only `server` and `protocol` know the Language Server Protocol, and only they import pygls.
"""
