"""Many at once and for long: spenders that race for one budget, thousands of processes for minutes, a large journal to
recover.
"""
