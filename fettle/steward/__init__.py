"""The only code that decides what to write to the cluster; one leader does it.

May import the view and the session; nothing of the faces.
"""

from fettle.steward.allowing import Allowing
from fettle.steward.stewarding import Steward

__all__ = [
    "Allowing",
    "Steward",
]
