"""Editor support: what `vega lsp` knows about a program that is being written.

The core is functions of a text and an offset that give plain data: `document` (texts, changes, positions), `analysis`
(one text: its tree, names, kinds), `reparse` (its tree after a change), `walk`, `symbols` and `index` (which name means
what), `project` and `imports` (files that import each other), `diagnostics`, `hover`, `completion` and `context`,
`signature`, `navigation`, `rename`, `tokens`, `outline`, `layout`, `lens`; `texts` and `snippets` are what is shown and
written. Only `server`, `features`, `wire` and `protocol` know the Language Server Protocol, and only they import pygls.
`extension` writes parts of the extension for VS Code.
"""
