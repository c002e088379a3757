"""The values of Vega programs: how they are shown, compared, copied and combined by operators, and the fuel of large
steps. Start with `values`.
"""
