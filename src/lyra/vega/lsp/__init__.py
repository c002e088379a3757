"""Vega in editors: what `vega lsp` knows about a program that is being written.

The core is functions of a text and an offset that give plain data: `project` (files that import each other), `analysis`
(one text: its tree, names, kinds), `index` (which name means what), `hover`, `completion`; `texts` is what is shown.
`language` has the mistakes, leads from a name to its declaration and uses, and puts all together for the language
server in `lyra.lsp`, which alone knows the protocol.
"""
