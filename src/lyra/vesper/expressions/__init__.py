"""The expression language: its grammar and its functions. Start at `parser.parse_expression`; `terms` is its tree."""
