"""Diagnostics after an edit: what linters, type checkers and language servers say of the file comes with the result.

`after_edit` wraps the tools that edit: start there. `code_problem` is one problem, says which are new, and runs the
programs that the settings name for a file; `language_server` keeps a server running and speaks to it. Programs run in
the sandbox, and their output is text from outside.
"""
