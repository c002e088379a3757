"""Parts of pages: functions that write data as HTML and read nothing themselves. Start with `facts`, the smallest.

They know `html`, `words` and the other tools of a page, and neither its frame (`layout`) nor the kernel.
"""
