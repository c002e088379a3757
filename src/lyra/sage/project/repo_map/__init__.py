"""The map of a repository: files and their symbols, ranked, within a token budget, refreshed as files change.

`repo_map` is what others use, with `tool` for models. It starts `worker`, a process that lists the files (`listing`,
`ignore_rules`), makes the `outline` of those that changed, keeps outlines in `cache`, and orders definitions
(`ranking`). `symbol` is one definition; `python_outline`, `grammar_outline` and `pattern_outline` find them. Start with
`repo_map`. Nothing is downloaded, and no file with keys is opened.
"""
