"""Sage in editors: the Agent Client Protocol over stdin and stdout.

`sage_sessions` are the sessions behind the face that every agent has (`lyra.agents.acp.editor_agent`); start there.
"""
