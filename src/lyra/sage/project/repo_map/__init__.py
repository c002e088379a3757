"""The map of a repository: files and their symbols, ranked, within a token budget, refreshed as files change.

`repo_map` is what others use, with a tool for models: start there. It starts `worker`, a process that lists the files,
makes the `outline` of those that changed, keeps outlines and orders definitions. Nothing is downloaded, and no file
with keys is opened.
"""
