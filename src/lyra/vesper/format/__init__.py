"""One layout for files of nodes, and one picture of a node.

Start at `layout.format_text`. `picture.draw_node` draws the steps of a node in words.
"""
