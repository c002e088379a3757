"""What shows that two paths agree, and the mode that it allows.

Start with `compare`, which says how two outcomes differ, and `differential`, which looks for inputs on which they do;
`modes` says what the comparisons allow.
"""
