"""Sage, the code agent: sessions that last, undo, slash commands, extensions; faces: terminal, print, ACP, SDK.

An agent of `lyra.agents` with the built-in tools does the work; this part keeps its sessions and shows them.

    terminal | print | acp | sdk  >  agent  >  commands  >  session | project | extensions

Start with `agent.live`: one session that is open.
"""
