"""The page in a real browser: Debian's chromium, told what to do by the DevTools protocol."""

SKIPPED = "needs chromium (apt-get install chromium)"
