"""A slow walk over the tree of a program: the third opinion where the two paths differ.

Start with `run`; it follows the order of an execution literally.
"""
