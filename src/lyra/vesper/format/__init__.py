"""One layout for files of nodes. Start at `layout.format_text`; `tree` is the file with its comments."""
