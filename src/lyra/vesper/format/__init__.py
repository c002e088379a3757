"""One layout for files of nodes. Start at `formatter.format_text`; `tree` is the file with its comments, `layout`
writes texts, `layout` writes the whole.
"""
