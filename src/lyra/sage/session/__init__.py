"""A session on disk: its record, the index of all sessions, the kept contents of files, and its export.

Each session has a folder `sessions/ID` in `lyra.core.user_folders`. Nothing here talks to a model or runs a tool.
Start with `record`: what is known of a session without opening its store.
"""
