"""Diagnostics after an edit: what linters, type checkers and language servers say of the file comes with the result.

`after_edit` wraps the tools that edit, and keeps a language server running: start there. `code_problem` is one problem,
says which are new, and runs the programs that the settings name for a file. Programs run in the sandbox, and their
output is text from outside.
"""
