"""What is reported besides the rules: about what the API server refuses anyway, and about
DevicePolicies.

Not about claims and workloads that can never work, so these have no row in the table of mistakes;
`fettle lint` says all of them, the webhook only what the API server cannot know.
"""

from typing import NamedTuple

from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Severity
from fettle.lint.rules.catalog import RULES


class Check(NamedTuple):
    """As a rule is described; see `fettle.lint.findings.Rule`."""

    id: str
    name: str
    severity: Severity
    mistake: str
    today: str

    def finding(self, field: Field, message: str, fix: str = "") -> Finding:
        return Finding(
            rule=self.id, severity=self.severity, field=field.path, message=message, fix=fix
        )


IGNORED = Check(
    "FTL101",
    "ignored-policy",
    Severity.WARN,
    "An annotation or label that names no existing policy, or has an invalid value or one without "
    "effect.",
    "The pod runs under the next policy that applies; the webhook warns.",
)
INVALID_POLICY = Check(
    "FTL102",
    "invalid-policy",
    Severity.DENY,
    "A DevicePolicy with a value that is not allowed.",
    "The API server refuses it if the CustomResourceDefinition is up to date.",
)
INVALID_EXPRESSION = Check(
    "FTL103",
    "invalid-expression",
    Severity.DENY,
    "A CEL selector that does not compile.",
    "The API server refuses the object.",
)
UNKNOWN_RULE = Check(
    "FTL104",
    "unknown-rule",
    Severity.WARN,
    "A DevicePolicy whose validation.rules name a rule that does not exist.",
    "It has no effect; the webhook warns when the policy is written, and never refuses it.",
)
IGNORED_REQUIREMENT = Check(
    "FTL105",
    "ignored-requirement",
    Severity.WARN,
    "A requirement of a DevicePolicy that does not compile for a device or for a node.",
    "It is ignored: pods are placed as if it were not there. The webhook warns when the policy is "
    "written, and never refuses it.",
)
NO_EFFECT = Check(
    "FTL107",
    "no-effect-yet",
    Severity.WARN,
    "A DevicePolicy with `onDeviceFailure: Evict`, which is reserved.",
    "No pod is evicted; the webhook warns when the policy is written, and never refuses it.",
)
PREFERS_IN_VAIN = Check(
    "FTL108",
    "prefers-what-it-refuses",
    Severity.WARN,
    "A DevicePolicy with `degraded: Prefer` and a `minScore` that degraded devices do not reach.",
    "They are refused instead of preferred; the webhook warns when the policy is written, and "
    "never refuses it.",
)
WRONG_TYPE = Check(
    "FTL106",
    "wrong-type",
    Severity.DENY,
    "A value of the wrong type, such as a quoted number.",
    "The API server cannot decode the object and refuses it.",
)
UNKNOWN_ANNOTATION = Check(
    "FTL109",
    "unknown-annotation",
    Severity.WARN,
    "An annotation `fettle.dev/...` that Fettle does not have.",
    "It is ignored; the webhook warns.",
)
CHECKS = (
    IGNORED,
    INVALID_POLICY,
    INVALID_EXPRESSION,
    UNKNOWN_RULE,
    IGNORED_REQUIREMENT,
    WRONG_TYPE,
    NO_EFFECT,
    PREFERS_IN_VAIN,
    UNKNOWN_ANNOTATION,
)
IDS = frozenset({*(rule.id for rule in RULES), *(check.id for check in CHECKS)})
"""All that a policy and the settings can name."""
