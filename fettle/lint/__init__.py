"""Rules that find claims and workloads which can never work, before anybody waits for them.

One class a rule, grouped by subject; the same rules serve the admission webhook and the command
line. They read raw JSON through `manifests` and `fields`, because what they judge may be anything,
and ask what they need to know of the cluster of a `Cluster`: objects by name, and surveys of which
devices a selector matches, which `fleet` makes and keeps. `linting` runs them. Part of the core:
does no I/O, and evaluates no selector itself.
"""

from fettle.lint import policies, shapes
from fettle.lint.checks import CHECKS, INVALID_EXPRESSION, Check
from fettle.lint.configured import check_settings, configured_drivers
from fettle.lint.decoding import mismatches
from fettle.lint.fields import Field, below
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.linting import DEFAULT_LEVELS, Linter, levels_for
from fettle.lint.manifests import Manifest, expressions
from fettle.lint.names import listed
from fettle.lint.policies import UNKNOWN, correction, in_vain, requirements, unknown_rules
from fettle.lint.rules.catalog import ABSENCES, RULES
from fettle.lint.shapes import POD_TEMPLATES, Table
from fettle.lint.survey.surveying import Evaluator

__all__ = [
    "ABSENCES",
    "CHECKS",
    "DEFAULT_LEVELS",
    "INVALID_EXPRESSION",
    "POD_TEMPLATES",
    "RULES",
    "UNKNOWN",
    "Check",
    "Evaluator",
    "Field",
    "Finding",
    "Linter",
    "Manifest",
    "Rule",
    "Severity",
    "Table",
    "below",
    "check_settings",
    "configured_drivers",
    "correction",
    "expressions",
    "in_vain",
    "levels_for",
    "listed",
    "mismatches",
    "policies",
    "requirements",
    "shapes",
    "unknown_rules",
]
