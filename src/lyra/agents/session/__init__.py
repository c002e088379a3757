"""What one agent process holds between its turns: the transcript, its tools, its records, its callers' replies.

`shared` holds what all agents of a kernel share: their models (`models`) and the questions that wait for an answer
(`open_questions`). `early_call` serves calls that start before the program reaches them. A turn itself is in
`lyra.agents.turn`. Start with `session` and `agent_process`.
"""
