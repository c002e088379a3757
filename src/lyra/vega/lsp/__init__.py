"""Editor support: what `vega lsp` knows about a program that is being written.

The core is functions of a text and an offset that give plain data: `project` (texts, their changes, files that import
each other), `analysis` (one text: its tree, names, kinds), `index` (which name means what), `diagnostics`, `hover`,
`completion` and `context`, `navigation`, `tokens`, `server`; `texts` is what is shown. Only `server`, `features` and
`wire` know the Language Server Protocol, and only they import pygls.
"""
