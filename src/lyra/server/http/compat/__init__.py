"""The faces that clients of OpenAI and Anthropic know: a Lyra agent in the place of a model.

`conversation` turns the messages of a request into a conversation with an agent; start there. `openai` and `anthropic`
read and write the forms of their vendor. The agent's own settings hold: its model, its tools, its budget. What a
request says about sampling is taken and not used; what would change the answer's form is refused.
"""
