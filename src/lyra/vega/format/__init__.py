"""The one layout of a Vega source: `formatter.format_source`.

`expressions` and `formatter` make documents of the tree, `layout` fits them into lines.
"""
