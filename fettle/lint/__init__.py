"""Rules that find claims and workloads which can never work, before anybody waits for them.

The same rules serve the admission webhook and the command line. A rule reads one object through
`Manifest` and `Field`, and asks a `Cluster` what it needs to know: objects by name, and surveys of
which devices a selector matches. `Linter` runs the rules. Stands beside *verdict* in
*watch → inventory → health → verdict → answer*: it reads the same view. Pure: it does no I/O and
evaluates no selector itself.
"""

from fettle.lint import workload_kinds
from fettle.lint.annotations import ANNOTATION_IGNORED, misspelt_names, suggest_annotation
from fettle.lint.checks import (
    BROKEN_RULE,
    CHECKS,
    COMPLETENESS,
    INVALID_RULES,
    at_levels,
    compile_expressions,
    has_expressions,
    ineffective_settings,
    policy_requirements,
    remarks_on_policies,
    run_checks,
    unknown_rules,
    without_effect,
)
from fettle.lint.findings import Check, Finding, Rule, Severity
from fettle.lint.identities import REPEATED_KEY, SAME_OBJECT, looks_like_object
from fettle.lint.linter import (
    DEFAULT_LEVELS,
    Linter,
    check_settings,
    configured_drivers,
    levels_for,
)
from fettle.lint.manifests import Field, Manifest, below, values_at
from fettle.lint.names import listed, nearest
from fettle.lint.refusals import REFUSALS
from fettle.lint.rules import ABSENCES, RULES
from fettle.lint.rules.jobs import IN_PLACE_RESTART, in_place_errors
from fettle.lint.shapes.customs import (
    Customs,
    StatedRule,
    absent_field,
    customs_with,
    schemas_of,
    shipped_customs,
    stated_rules,
)
from fettle.lint.survey.matching import Evaluator

__all__ = [
    "ABSENCES",
    "ANNOTATION_IGNORED",
    "BROKEN_RULE",
    "CHECKS",
    "COMPLETENESS",
    "DEFAULT_LEVELS",
    "INVALID_RULES",
    "IN_PLACE_RESTART",
    "REFUSALS",
    "REPEATED_KEY",
    "RULES",
    "SAME_OBJECT",
    "Check",
    "Customs",
    "Evaluator",
    "Field",
    "Finding",
    "Linter",
    "Manifest",
    "Rule",
    "Severity",
    "StatedRule",
    "absent_field",
    "at_levels",
    "below",
    "check_settings",
    "compile_expressions",
    "configured_drivers",
    "customs_with",
    "has_expressions",
    "in_place_errors",
    "ineffective_settings",
    "levels_for",
    "listed",
    "looks_like_object",
    "misspelt_names",
    "nearest",
    "policy_requirements",
    "remarks_on_policies",
    "run_checks",
    "schemas_of",
    "shipped_customs",
    "stated_rules",
    "suggest_annotation",
    "unknown_rules",
    "values_at",
    "without_effect",
    "workload_kinds",
]
