"""Certificates of the listeners: issuing, rotating, and swapping them while connections are open.

Beside the flow *watch → inventory → health → verdict → answer*. Only `secrets` talks to the API
server; everything else reads and writes the Secret through a `Store` that is passed in, and knows
of Fettle just its errors, settings and key files. Nothing writes a key to disk.
"""
