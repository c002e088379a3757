"""One layout for files of nodes, and one picture of a node.

Start at `layout.format_text`; `tree` is the file with its comments. `picture.draw_node` draws the steps of a node in
words.
"""
