"""From text to tree: source, lexer, parser and the tree's nodes.

Start with `parser`. The tree has positions and no types; names are resolved in `lyra.vega.checker`.
"""
