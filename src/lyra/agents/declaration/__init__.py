"""What an agent is declared with: `AgentDeclaration`, the content of its messages and the type of its answers.

Plain data that is checked when it is written. Nothing here runs an agent or imports `session` or `turn`. Start with
`agent`; the `Agent` that users write is in `lyra.agents.agent`.
"""
