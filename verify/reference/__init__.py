"""Writes the generated pages of docs/reference from the tables that the code uses: `python -m verify reference`.

Start with `pages`, the list of pages and what writes each.
"""
