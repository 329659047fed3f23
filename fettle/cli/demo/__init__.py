"""`fettle demo`: shows on an embedded fleet what Fettle does, by calling a Fettle over HTTP."""
