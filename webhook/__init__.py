"""The admission webhook: one of the answers in *watch → inventory → health → verdict → answer*.

`app` serves, `review` reads and writes AdmissionReviews, `mutate` and `validate` judge. Each answer
comes from the newest view: while a request waits, nothing is fetched from the API server.
"""

from webhook.app import last_reviews, make_app
from webhook.cluster_features import (
    ALL_PRESERVED,
    FieldProbe,
    PreservedFields,
    fit_configuration,
    groups_to_discover,
)
from webhook.observing import REPORTING_CONTROLLER, EventMetrics, EventSink, StoredPolicyRules

__all__ = [
    "ALL_PRESERVED",
    "REPORTING_CONTROLLER",
    "EventMetrics",
    "EventSink",
    "FieldProbe",
    "PreservedFields",
    "StoredPolicyRules",
    "fit_configuration",
    "groups_to_discover",
    "last_reviews",
    "make_app",
]
