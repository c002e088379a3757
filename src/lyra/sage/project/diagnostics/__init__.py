"""Diagnostics after an edit: what linters, type checkers and language servers say of the file comes with the result.

`after_edit` wraps the tools that edit: start there. `checks` has the programs that the settings name for a file,
`commands` runs a command line to its end, `language_server` keeps a server running and speaks to it (`lsp_messages`).
`code_problem` is one problem, and says which are new. Programs run in the sandbox, and their output is text from
outside.
"""
