"""The admission webhook: one face of *watch → inventory → health → verdict → answer*.

`review` reads and writes AdmissionReviews, `mutating` and `validating` judge, `patches` edits raw
objects, `app` serves. It answers from the newest view alone and asks nobody while a request waits.
Never imports the extender, the steward or the feeds.
"""

from webhook import fitting
from webhook.app import last_asked, make_app
from webhook.gates import EVERYTHING, Gates, Probe
from webhook.metrics import EventMetrics
from webhook.policies import StoredPolicies
from webhook.telling import CONTROLLER, Tell

__all__ = [
    "CONTROLLER",
    "EVERYTHING",
    "EventMetrics",
    "Gates",
    "Probe",
    "StoredPolicies",
    "Tell",
    "fitting",
    "last_asked",
    "make_app",
]
