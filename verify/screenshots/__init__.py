"""Pictures for the documentation: sessions of `sage` in a pseudo-terminal, drawn as SVG, and pages of the dashboard.

Start with `scenes`: what is typed in each session, and when a picture is taken. `recorded_terminal` runs the program,
`screen_svg` draws its screen. `python -m verify screenshots` writes `docs/images/sage-*.svg`, with `--web` the pages of
`web_pages` as `docs/images/web-*.png`.
"""
