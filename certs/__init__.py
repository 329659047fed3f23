"""Certificates of the listeners: issuing, rotating, and swapping them while connections are open.

Beside the flow *watch → inventory → health → verdict → answer*. Only `secrets` talks to the API
server; everything else reads and writes the Secret through a `Store` that is passed in, and knows
of Fettle just its errors, settings and key files. Nothing writes a key to disk.
"""

from certs import authority, issuing, validity
from certs.files import FromFiles, client_authority
from certs.rotating import POLL_S, Lifetimes, LongLived, Rotation, SelfSigning
from certs.secrets import Bundles, SecretStore
from certs.serving import Serving

__all__ = [
    "POLL_S",
    "Bundles",
    "FromFiles",
    "Lifetimes",
    "LongLived",
    "Rotation",
    "SecretStore",
    "SelfSigning",
    "Serving",
    "authority",
    "client_authority",
    "issuing",
    "validity",
]
