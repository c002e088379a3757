"""What shows that two paths agree, and the mode that it allows.

Start with `compare`, which says how two outcomes differ, and `differential`, which looks for inputs on which they do;
`confidence` and `modes` say what the comparisons allow.
"""
