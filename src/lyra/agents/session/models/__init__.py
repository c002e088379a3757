"""The models of the agents of one kernel: which there are, what they cost and may be asked, and the keys to them.

`agent_models` resolves the name of a model and knows its price, its limits and its token counts; `model_settings` is
the configuration behind it, `provider_keys` the keys that no text may hold. A call of a model is in
`lyra.agents.session.model_call`, its effect in `lyra.agents.turn`.
"""
