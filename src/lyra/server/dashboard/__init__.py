"""The dashboard: pages for people, rendered on the server and kept live by server-sent events.

Start with `routes`, the table of the pages. A page reads the kernel and writes HTML; every act is a request of the API.
"""
