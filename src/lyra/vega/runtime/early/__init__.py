"""Calls that a Vega program starts before it reaches them: their budget, and taking their results in program order.

Start with `calls`.
"""
