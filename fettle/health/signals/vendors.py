"""Which labels and annotations of Nodes may tell of health, by keys that no other rule names."""

import re
from fnmatch import fnmatchcase

from fettle.health.signals.rule_rows import RuleRow

_TELLS_OF_HEALTH = re.compile(
    "health(?!care)|degrad|(?<!de)fault(?![-_.]?(?:domain|toleran))|quarantin|maintenance|cordon"
    "|drain|broken|remediat|repair|evict|fail(?!ure[-_.]?domain|over)|error|suspect|reboot"
    "|unavailable|abnormal|anomal|problem|incident|defect|impair|damag|corrupt|malfunction|outage"
    "|unrespons|uncorrect|retire|decommission|(?<![a-z])(?:bad|xid|sick|lost|rma)(?![a-z])"
    "|(?-i:(?<![A-Za-z])(?:bad|xid|sick|lost|RMA)(?=[A-Z])"  # badGPU
    "|(?<=[a-z])(?:Bad|Xid|XID|Sick|Lost|Rma|RMA)(?![a-z]))",  # gpuXid
    re.IGNORECASE,
)
"""Words that no mere description of a device or node has. `default`, or a domain of faults, is not
one of them."""
_LONGEST_KEY = 253 + 1 + 63
"""Of a label or annotation that the API server takes."""


def tells_of_health(key: str) -> bool:
    """Whether a label's or annotation's key has such a word."""
    return _TELLS_OF_HEALTH.search(key[:_LONGEST_KEY]) is not None


class VendorRow(RuleRow, frozen=True, kw_only=True):
    """A vendor whose labels and annotations on Nodes may tell of health, by whatever word (the
    row's name is their domain, also with a prefix). Keys that match one of the patterns `describes`
    do not. A key with a word such as `health`, `fault`, `drain` or `maintenance` must be given in
    full: whosever it is, it tells of health."""

    describes: tuple[str, ...] = ()

    def may_tell(self, key: str) -> bool:
        """Whether a key, without any such word, is the vendor's and not described. Keys without a
        domain may begin with it: `metricsexporter.amd.com.gpu.0.state`."""
        if f".{self.name}." not in f".{key.partition('/')[0]}.":
            return False
        return not any(fnmatchcase(key, pattern) for pattern in self.describes)
