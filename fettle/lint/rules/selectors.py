"""Rules about what the CEL selectors of a request match."""

from collections.abc import Collection, Iterator, Sequence

from fettle.api.raw import text
from fettle.cel import AttributeRead, Equation
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestOption, ManifestRequest
from fettle.lint.names import listed, nearest
from fettle.lint.survey.fleet import Catalogue
from fettle.lint.survey.totals import Abort, Survey

_NO_OVERLOAD = "no such overload"
_NOT_COMPILED = "does not compile"
_OTHER_TYPE = (
    "versions are compared with semver(…).compareTo, quantities with quantity(…).compareTo, "
    "strings with quotes, numbers and booleans without"
)
_COMPARABLE_TYPES = {
    "int": "number",
    "uint": "number",
    "double": "number",
    "bool": "bool",
    "string": "string",
    "kubernetes.Semver": "version",
    "list": "list",
}
"""What a value of a CEL type can be equal to, in the words of `comparable_type`; attributes are
compared with no other types."""
_LACKING = (
    "first test for what a device may lack: has(device.attributes[…].name) && …, or use optional "
    "chaining: .?name.orValue(…)"
)


class SelectorMatchesNothing(Rule):
    """The selectors of a request match no device of its class; says what the nearest one lacks."""

    id = "FTL004"
    reproduced = True
    name = "selector-matches-nothing"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending: `cannot allocate all claims`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                if any(s is not None and s.matched for s in map(cluster.survey, request.options)):
                    continue
                open_options = (
                    (o, why) for o in request.options if (why := _why_undecided(o, cluster))
                )
                if (unknown := next(open_options, None)) is not None:
                    option, why = unknown
                    yield self.finding(option.field, why, severity=Severity.UNDECIDED)
                elif survey := _unmatched(request, cluster):
                    yield self.finding(
                        request.options[0].field.at("selectors"),
                        _nearest_miss(survey),
                        "compare the selectors with what `kubectl get resourceslices -o yaml` "
                        "shows",
                    )


def _why_undecided(option: ManifestOption, cluster: Cluster) -> str:
    """Why it is not known whether an option matches anything; "" if it is known."""
    selection = cluster.selection(option)
    return cluster.why_undecided(selection) if selection is not None else ""


def _unmatched(request: ManifestRequest, cluster: Cluster) -> Survey | None:
    """The best survey of a request none of whose options matches, though their classes do."""
    best: Survey | None = None
    for option in request.options:
        survey = cluster.survey(option)
        if survey is None or not survey.decided or survey.matched:
            return None
        if survey.aborted and not survey.missed:
            return None  # the selectors fail on every device
        if survey.of_class and (best is None or survey.of_class > best.of_class):
            best = survey
    return best


def _nearest_miss(survey: Survey) -> str:
    nearest = f"; nearest: {survey.nearest}" if survey.nearest else ""
    return (
        f"0 of {survey.of_class} devices in {survey.pools_of_class} pools of "
        f"{listed(survey.drivers)} match{nearest}"
    )


class SelectorFails(Rule):
    """A selector fails on a device that the scheduler evaluates.

    If it fails on every device, nothing can be allocated until other devices come. If it fails on
    some, it depends on what else is on the node.
    """

    id = "FTL005"
    reproduced = True
    name = "selector-fails"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "Scheduling ends with `CEL runtime error: no such key: …` (SchedulerError), even where "
        "another node would fit."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option)
            if survey is None:
                continue
            yield from self._fatal(option, survey)
            if not survey.aborted:
                continue
            first = survey.aborts[0]
            always = survey.decided and not survey.matched and not survey.missed
            texts = {text(field.value): field for field in option.selectors}
            if _NOT_COMPILED in first.reason and first.expression in texts:
                continue  # the API server refuses the claim
            field = texts.get(first.expression, option.field.at("deviceClassName"))
            by_class = first.expression in survey.selection.of_class
            reached = survey.surveyed if by_class else survey.of_class
            yield self.finding(
                field,
                f"fails on {survey.aborted} of {reached} devices, such as {first.device}: "
                f"{first.reason}",
                _fix_for(first.reason),
                possible=not always,
            )

    def _fatal(self, option: ManifestOption, survey: Survey) -> Iterator[Finding]:
        if survey.fatal:
            first = survey.fatal_on[0]
            yield self.finding(
                option.field.at("deviceClassName"),
                f"{survey.fatal} of {survey.surveyed} devices fail whatever is asked of them, such "
                f"as {first.device}: {first.reason}",
                "have their driver publish them correctly",
                possible=True,
            )


def _fix_for(reason: str) -> str:
    if _NOT_COMPILED in reason:
        return "correct the selector of the class"
    return _OTHER_TYPE if _NO_OVERLOAD in reason else _LACKING


class WrongType(Rule):
    """A selector compares an attribute with a value of another type."""

    id = "FTL006"
    reproduced = True
    name = "attribute-of-another-type"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = (
        "Attribute types are checked when a selector runs, not when it is written: `==` and `in` "
        "are false, `!=` is true, ordering and version comparisons end scheduling with `no such "
        "overload`."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey, catalogue = cluster.survey(option), cluster.catalogue
            if survey is None or catalogue is None or not survey.decided:
                continue
            expressions = [text(field.value) for field in option.selectors]
            abort = _type_failure(survey, expressions)
            for field, expression in zip(option.selectors, expressions, strict=True):
                if abort is not None and abort.expression == expression:
                    yield self.finding(
                        field,
                        f"uses a value as a different type than {abort.device} publishes: "
                        f"{abort.reason}",
                        _OTHER_TYPE,
                    )
                    continue
                for never in dict.fromkeys(_never_equal(cluster.equations(expression), catalogue)):
                    yield self.finding(field, never, _OTHER_TYPE, possible=bool(survey.matched))


def _type_failure(survey: Survey, expressions: Collection[str]) -> Abort | None:
    """The first failure of one of these expressions over a type; None if anything matches."""
    own = (abort for abort in survey.aborts if abort.expression in expressions)
    over_types = (abort for abort in own if _NO_OVERLOAD in abort.reason)
    return next(over_types, None) if not survey.matched else None


def _never_equal(equations: Sequence[Equation], catalogue: Catalogue) -> Iterator[str]:
    """Comparisons of an attribute with a value that no device's attribute can equal.

    Left out if the expression compares it with the same value in the right type too: then the
    author knows of both types.
    """
    for equation in equations:
        whose = equation.read.domain, equation.read.name
        published = catalogue.kinds(*whose)
        kind = _COMPARABLE_TYPES.get(equation.type, "")
        if not published or not kind or not published.isdisjoint(("", kind)):
            continue
        spellings = {
            _COMPARABLE_TYPES.get(other.type, "")
            for other in equations
            if other.read == equation.read and other.value == equation.value != ""
        }
        if spellings.isdisjoint(published):
            yield (
                f"compares {'/'.join(whose)} with a {kind}, which it never equals: devices publish "
                f"a {' or a '.join(sorted(published))}"
            )


class UnknownAttributeDomain(Rule):
    """A selector reads from a domain that no device has, or mistypes an attribute's name."""

    id = "FTL007"
    reproduced = True
    name = "unknown-attribute"
    severity = Severity.WARN
    inventory = True
    today = (
        "An unknown domain is an empty map: reading from it ends scheduling with `no such key`, "
        "and `has()` of it is false."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (catalogue := cluster.catalogue) is None:
            return
        for option in manifest.options:
            for field in option.selectors:
                reads = cluster.reads(text(field.value))
                guarded = {(read.field, read.domain) for read in reads if not read.name}
                for read in reads:
                    may_lack = (read.field, read.domain) in guarded
                    if message := _unknown_attribute(read, catalogue, may_lack=may_lack):
                        wrong, near = message
                        fix = (
                            f"write {near}" if near else "see `kubectl get resourceslices -o yaml`"
                        )
                        yield self.finding(field, wrong, fix)


def _unknown_attribute(
    read: AttributeRead, catalogue: Catalogue, *, may_lack: bool
) -> tuple[str, str] | None:
    """What is wrong with a read, and the name that was probably meant.

    `may_lack`: the selector tests whether the domain exists, so only a typo is a mistake.
    """
    domains = catalogue.domains(read.field)
    if read.domain not in domains | catalogue.drivers:
        near = nearest(read.domain, domains)
        if may_lack and not near:
            return None
        has = f"existing: {listed(domains)}" if domains else "no device has any"
        return f"no device has {read.field} in the domain {read.domain!r} ({has})", near
    names = {name for domain, name in catalogue.names(read.field) if domain == read.domain}
    if not read.name or read.name in names:
        return None
    near = nearest(read.name, names)  # without one it may be a name of drivers yet to come
    return (f"no device has {read.field} {read.domain}/{read.name}", near) if near else None
