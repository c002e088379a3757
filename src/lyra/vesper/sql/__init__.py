"""Reading SQL for certain: its tokens, and the tables that a query reads. Nothing here runs a statement.

Start at `tables`.
"""
