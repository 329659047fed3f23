"""All rules, in the order of their ids."""

from fettle.lint.containers import UnknownRequest
from fettle.lint.counts import ClaimTooLarge
from fettle.lint.findings import Rule
from fettle.lint.tolerations import TolerationWithoutKey

RULES: tuple[Rule, ...] = (ClaimTooLarge(), TolerationWithoutKey(), UnknownRequest())
