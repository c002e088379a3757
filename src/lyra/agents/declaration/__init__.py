"""What an agent is declared with: `Agent`, the content of its messages and the type of its answers.

Plain data that is checked when it is written. Nothing here runs an agent or imports `session` or `turn`. Start with
`agent`.
"""
