"""Pictures of `sage` for the documentation: real sessions in a pseudo-terminal, drawn as SVG.

Start with `scenes`: what is typed in each session, and when a picture is taken. `recorded_terminal` runs the program,
`screen_svg` draws its screen. `python -m verify screenshots` writes `docs/images/sage-*.svg`.
"""
