"""What can be asked of Lyra itself: processes, agents, chats, runs, interrupts, traces, costs, services, events.

A module for each subject has its types, its handlers and, in `ENDPOINTS`, their declarations. Start with `processes`.
A handler checks the owner of what it touches before it touches it (`HttpCall.require_process`).
"""
