"""The pages in a real browser: Debian's Chromium, driven by playwright, in front of a served kernel.

Start with `conftest`: a test is an async function that is given `stage` (the served kernel) and `browser_page` (a
logged-in page that fails the test when something goes wrong in it). `stage` starts the server, `watched_page` is the
page, `axe` the judge of accessibility, `chromium` says what is missing where something is.
"""
