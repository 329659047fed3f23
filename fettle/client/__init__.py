"""The only code that talks to the API server: sessions, reflecting, leasing.

May import the wire structs and the words of `fettle.api.changes`; nothing that judges health or
decides what to write.
"""
