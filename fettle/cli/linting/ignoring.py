"""Findings that an author has decided to live with: an annotation of the object, as kube-linter has
them, or a comment, as checkov has them. Each needs a reason, and what ignores nothing is told.

Only `fettle lint` reads them. The webhook refuses what it refuses, whatever an object says of it.
"""

from collections.abc import Iterable, Iterator, Sequence

from fettle.cli.linting.files import Document, line_of
from fettle.cli.linting.reports import LintReport, rule_called
from fettle.lint import RULES, Manifest, below

ANNOTATION = "ignore-check.fettle.dev/"
COMMENT = "fettle:ignore="
_LONGEST = 300
_WITH_OTHERS = frozenset(("FTL035", "FTL036", "FTL039", "FTL044", "FTL055", "FTL057", "FTL101"))
"""Rules that look at claims, classes, quotas or policies, too, which may be in other files."""
_BY_INVENTORY = frozenset(rule.id for rule in RULES if rule.inventory) | _WITH_OTHERS


class _Wish:
    """One annotation or comment. `rule` is "" if there is none of that name."""

    def __init__(self, file: str, line: int, named: str, reason: str) -> None:
        self.where = f"{file}:{line}" if line else file
        self.named = named.strip()[:_LONGEST]
        self.rule = rule_called(self.named)
        self.reason = " ".join(reason.split())[:_LONGEST]
        self.used = False

    def excuses(self, report: LintReport) -> bool:
        if report.rule != self.rule:
            return False
        self.used = True
        return bool(self.reason)

    def complaint(self, *, complete: bool) -> str:
        """What is wrong with it; "" if nothing. Rules on inventory find less where less is known:
        that they find nothing then says nothing."""
        what = f"{self.where}: to ignore {self.named}"
        if not self.rule:
            return f"{what} has no effect: there is no such rule; `fettle rules` lists all"
        if not self.reason:
            return f"{what} has no effect without a reason: write why"
        if not self.used and (complete or self.rule not in _BY_INVENTORY):
            return f"{what} has no effect: the rule finds nothing there, so take it out"
        return ""


class Ignoring:
    """What these files ask to ignore."""

    def __init__(self, documents: Sequence[Document]) -> None:
        texts = {document.file: document.content for document in documents}
        self._comments = {
            (file, line): wishes
            for file, text in texts.items()
            if COMMENT in text
            for line, wishes in _comments(file, text)
        }
        self._annotations: list[_Wish] = []

    def applied(
        self, document: Document, reports: Iterable[LintReport], manifest: Manifest | None = None
    ) -> Iterator[LintReport]:
        """The findings on an object; what is ignored has its excuse."""
        wishes = _annotations(document, manifest) if manifest is not None else []
        self._annotations += wishes
        for report in reports:
            near = (*wishes, *self._comments.get((report.file, report.line), ()))
            excuses = [wish.reason for wish in near if wish.excuses(report)]
            yield report._replace(excuse=excuses[0]) if excuses else report

    def complaints(self, *, complete: bool) -> list[str]:
        """A sentence for each that has no effect."""
        wishes = [*self._annotations, *(one for found in self._comments.values() for one in found)]
        return list(filter(None, (wish.complaint(complete=complete) for wish in wishes)))


def _annotations(document: Document, manifest: Manifest) -> list[_Wish]:
    return [
        _Wish(
            document.file,
            line_of(document, below("metadata.annotations", key)),
            key.removeprefix(ANNOTATION),
            reason,
        )
        for key, reason in manifest.annotations.items()
        if key.startswith(ANNOTATION)
    ]


def _comments(file: str, text: str) -> Iterator[tuple[int, list[_Wish]]]:
    """The line that each comment is about: its own, or the next one if it stands alone."""
    waiting: list[_Wish] = []
    for number, line in enumerate(text.splitlines(), 1):
        before, marked, after = line.partition(COMMENT)
        before = before.rstrip()
        is_comment = marked and before.endswith("#") and before[-2:-1] in ("", " ", "\t")
        if is_comment:
            named, _, reason = after.partition(":")
            waiting.append(_Wish(file, number, named, reason))
        if waiting and line.strip() and not line.lstrip().startswith("#"):
            yield number, waiting
            waiting = []
    if waiting:
        yield 0, waiting
