"""Agents in an editor, by the Agent Client Protocol: lines, updates, questions and prompts, for Sage and any agent.

`editor_agent` serves any agent; start there. Sage has its own face (`lyra.sage.acp`) over the same parts. Imported only
by a command that speaks the protocol: it needs the extra `acp`.
"""
