"""Agents in an editor, by the Agent Client Protocol: lines, updates, questions and prompts, for Sage and any agent.

`editor_agent` has the methods that an editor calls, and what a session does; start there. `agent_sessions` are sessions
of any agent, `lyra.sage.acp` those of Sage. Imported only by a command that speaks the protocol: it needs the extra
`acp`.
"""
