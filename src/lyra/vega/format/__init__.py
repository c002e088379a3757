"""The one layout of a Vega source: `formatter.format_source`.

`formatter` makes documents of the tree, `layout` fits them into lines.
"""
