"""The second listener, for people and machines: it shows what the process knows to whoever may see
it, and changes nothing."""

from fettle.browse.access import TRUSTED, Invitation, by_review, by_token, screened, trusting
from fettle.browse.app import answers_of, make_browse_app
from fettle.browse.known import Known, Leader
from fettle.browse.reviews import Reviews

__all__ = [
    "TRUSTED",
    "Invitation",
    "Known",
    "Leader",
    "Reviews",
    "answers_of",
    "by_review",
    "by_token",
    "make_browse_app",
    "screened",
    "trusting",
]
