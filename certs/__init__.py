"""Certificates of the listeners: signed, rotated, and swapped while connections are open.

Beside the flow *watch → inventory → health → verdict → answer*. `modes` picks the certificate of
each listener. Only `secrets` and `modes` talk to the API server. No key is written to disk, except
for a moment to load it.
"""

from certs import authority, issuing
from certs.callers import KnownCallers
from certs.modes import alerts_tls, extender_tls, webhook_tls
from certs.secrets import SecretStore
from certs.serving import CertificateWarnings, ListenerTLS

__all__ = [
    "CertificateWarnings",
    "KnownCallers",
    "ListenerTLS",
    "SecretStore",
    "alerts_tls",
    "authority",
    "extender_tls",
    "issuing",
    "webhook_tls",
]
