"""Rules about what the CEL selectors of a request or a DeviceClass match."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from fettle.api.raw import text
from fettle.api.resource import DeviceAttribute
from fettle.cel import AttributeRead, Equation
from fettle.lint.cluster import Cluster, class_selection
from fettle.lint.findings import Finding, Rule, Severity, of_request
from fettle.lint.manifests import (
    Field,
    Manifest,
    ManifestOption,
    ManifestRequest,
    expressions,
)
from fettle.lint.names import listed, misspelt, nearest
from fettle.lint.survey.fleet import Catalogue
from fettle.lint.survey.matching import Selection
from fettle.lint.survey.totals import Abort, Survey, value_at

_NO_OVERLOAD = "no such overload"
_NOT_COMPILED = "does not compile"
_OTHER_TYPE = (
    "versions are compared with semver(…).compareTo, quantities with quantity(…).compareTo, "
    "strings with quotes, numbers and booleans without"
)
COMPARABLE_TYPES = {
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
_LITERALS = ("string", "bool", "int", "uint")
"""Types of which two literals are equal only if their texts are."""
_NO_KEY = "no such key: "


class _Written(NamedTuple):
    """Selectors that one author wrote, and what they match of what they choose from.

    An option of a request chooses from the devices of its class; a DeviceClass from those of the
    driver that it asks for, or (`unguarded`) from all. What is wrong elsewhere is reported at
    `beside`. `driver` is the one whose devices can contradict them, "" if none can.
    """

    selectors: tuple[Field, ...]
    beside: Field
    survey: Survey | None
    driver: str
    unguarded: bool = False


def _judged(
    manifest: Manifest, cluster: Cluster, judge: Callable[[_Written], Iterator[Finding]]
) -> Iterator[Finding]:
    """The findings on all selectors that the object's author wrote."""
    for request in manifest.requests:
        by_option = [_of_option(option, cluster) for option in request.options]
        yield from of_request([list(judge(written)) for written in by_option])
    for spec in manifest.device_classes:
        survey = cluster.survey_of(cluster.selection_among_driver(spec))
        # The driver of a class may come with the same chart, and publish what it likes.
        if survey is not None and survey.of_class:
            yield from judge(_of_class(spec, survey, cluster))


def _of_option(option: ManifestOption, cluster: Cluster) -> _Written:
    survey = cluster.survey(option)
    beside = option.field.at("deviceClassName")
    return _Written(option.selectors, beside, survey, _contradictable(survey, cluster))


def _of_class(spec: Field, survey: Survey, cluster: Cluster) -> _Written:
    return _Written(
        tuple(expressions(spec)),
        spec.at("selectors"),
        survey,
        _contradictable(survey, cluster),
        unguarded=not survey.selection.of_class,
    )


def _contradictable(survey: Survey | None, cluster: Cluster) -> str:
    """The driver whose devices can contradict selectors; "" if none.

    None if they require a text that no device of the driver shows: devices of such a kind may come,
    and GPUs say nothing about MIG devices.
    """
    driver = cluster.contradictable(survey) if survey is not None else ""
    if survey is None or not driver:
        return ""
    another_kind = any(
        (shown := _texts(read, survey))
        and all(kind == "string" and value not in shown for kind, value in values)
        for read, values in _required_of_request(survey, cluster)
    )
    return "" if another_kind else driver


class SelectorMatchesNothing(Rule):
    """The selectors of a request match no device of its class."""

    id = "FTL004"
    reproduced = True
    name = "selector-matches-nothing"
    severity = Severity.WARN
    denies_if = "it misspells a value that devices show"
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
                    surveys = map(cluster.survey, request.options)
                    meant = [misspelt_value(each, cluster) for each in surveys]
                    near = next(filter(None, meant), "")
                    yield self.finding(
                        request.options[0].field.at("selectors"),
                        _nearest_miss(survey),
                        f"did you mean {near!r}?"
                        if near
                        else "compare the selectors with what `kubectl get resourceslices -o yaml` "
                        "shows",
                        Severity.DENY if all(meant) else None,
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


def misspelt_value(survey: Survey | None, cluster: Cluster) -> str:
    """The value that was probably meant by one that a device must have and none shows."""
    if survey is None or survey.matched or survey.aborted or not cluster.contradictable(survey):
        return ""
    meant = ""
    for read, values in _required_of_request(survey, cluster):
        texts = [text for kind, text in values if kind == "string"]
        if len(texts) < len(values) or not _texts(read, survey).isdisjoint(texts):
            continue
        shown = _enumeration(read, survey)
        near = [misspelt(text, shown) for text in texts]
        if not all(near) or not cluster.texts(read).isdisjoint(texts):
            return ""  # a device of another kind or model may come, and show anything
        meant = near[0]
    return meant


def _required_of_request(
    survey: Survey, cluster: Cluster
) -> Iterator[tuple[AttributeRead, frozenset[tuple[str, str]]]]:
    for expression in survey.selection.of_request:
        yield from required_values(cluster.equations(expression))


def required_values(
    equations: Iterable[Equation],
) -> Iterator[tuple[AttributeRead, frozenset[tuple[str, str]]]]:
    """Attributes that must have one of some literals for an expression to match, each literal as
    the type it compares as and its text."""
    by_part: dict[int, list[Equation]] = {}
    for equation in equations:
        by_part.setdefault(equation.part, []).append(equation)
    for part, alternatives in by_part.items():
        reads = {equation.read for equation in alternatives}
        if part and len(reads) == 1 and all(e.value and e.type in _LITERALS for e in alternatives):
            values = ((COMPARABLE_TYPES[e.type], e.value) for e in alternatives)
            yield reads.pop(), frozenset(values)


def _enumeration(read: AttributeRead, survey: Survey) -> Set[str]:
    """The texts that an attribute of the class's devices has, if it is an enumeration: on average,
    two devices or more share each. Empty for what identifies a device."""
    shown = _texts(read, survey)
    return shown if survey.lists_all_missed and 2 * len(shown) <= survey.of_class else set()


def _texts(read: AttributeRead, survey: Survey) -> Set[str]:
    """The texts that an attribute has on devices that only the class matches."""
    values = (value_at(read, device) for device in survey.missed)
    return {v.string for v in values if isinstance(v, DeviceAttribute) and v.string}


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
    denies_if = "it needs what no device of its driver can have, or has in another type"
    strict = True
    inventory = True
    today = (
        "Scheduling ends with `CEL runtime error: no such key: …` (SchedulerError), even where "
        "another node would fit."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        return _judged(manifest, cluster, lambda written: self._judge(written, cluster))

    def _judge(self, written: _Written, cluster: Cluster) -> Iterator[Finding]:
        survey = written.survey
        if survey is None or written.unguarded:  # FTL008 is about such a class
            return
        yield from self._fatal(written, survey)
        if not survey.aborted:
            return
        first = survey.aborts[0]
        always = survey.decided and not survey.matched and not survey.missed
        texts = {text(field.value): field for field in written.selectors}
        if _NOT_COMPILED in first.reason and first.expression in texts:
            return  # the API server refuses the claim
        by_class = first.expression in survey.selection.of_class
        reached = survey.surveyed if by_class else survey.of_class
        never = not by_class and not survey.matched and _never_matches(first, written, cluster)
        yield self.finding(
            texts.get(first.expression, written.beside),
            f"fails on {survey.aborted} of {reached} devices, such as {first.device}: "
            f"{first.reason}",
            _fix_for(first, cluster),
            Severity.DENY if never else None,
            possible=not always,
        )

    def _fatal(self, written: _Written, survey: Survey) -> Iterator[Finding]:
        if survey.fatal:
            first = survey.fatal_on[0]
            yield self.finding(
                written.beside,
                f"{survey.fatal} of {survey.surveyed} devices fail whatever is asked of them, such "
                f"as {first.device}: {first.reason}",
                "have their driver publish them correctly",
                possible=True,
            )


def _never_matches(abort: Abort, written: _Written, cluster: Cluster) -> bool:
    """Whether an expression that fails would match no device that the driver may come to have.

    It matches none without what it needs. And it matches none of other values, if it fails on all
    devices over their types, and has no alternatives nor a part that could do without.
    """
    if not (driver := written.driver) or written.survey is None or cluster.catalogue is None:
        return False
    needed = cluster.needed(abort.expression)
    if any(not cluster.may_come(driver, read) for read in needed):
        return True
    if _NO_OVERLOAD not in abort.reason or written.survey.missed:
        return False
    if any(mark in "".join(abort.expression.split()) for mark in _ALTERNATIVES):
        return False  # what fails may not count, if another part holds for other values
    reads, kinds = cluster.reads(abort.expression), cluster.catalogue.kinds
    return bool(needed) and all(
        read in needed and (read.field == "capacity" or len(kinds(read.domain, read.name)) == 1)
        for read in reads
    )


_ALTERNATIVES = ("||", "?", "!(", "exists")
"""What is in an expression that may hold though a part of it fails."""


def _fix_for(abort: Abort, cluster: Cluster) -> str:
    if _NOT_COMPILED in abort.reason:
        return "correct the selector of the class"
    if _NO_OVERLOAD in abort.reason:
        return _OTHER_TYPE
    lacking = abort.reason.removeprefix(_NO_KEY)
    reads = cluster.reads(abort.expression)
    read = next((r for r in reads if lacking in (r.name, r.domain)), None)
    field, domain, name = read if read is not None else ("attributes", "…", "name")
    place = f'device.{field}["{domain}"]'
    return (
        f"first test for what a device may lack: has({place}.{name}) && …, or use optional "
        f"chaining: {place}.?{name}.orValue(…)"
    )


class WrongType(Rule):
    """A selector compares an attribute with a value of another type."""

    id = "FTL006"
    reproduced = True
    name = "attribute-of-another-type"
    severity = Severity.WARN
    denies_if = "so no device of the driver can match"
    strict = True
    inventory = True
    today = (
        "Attribute types are checked when a selector runs, not when it is written: `==` and `in` "
        "are false, `!=` is true, ordering and version comparisons end scheduling with `no such "
        "overload`."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        return _judged(manifest, cluster, lambda written: self._judge(written, cluster))

    def _judge(self, written: _Written, cluster: Cluster) -> Iterator[Finding]:
        survey, catalogue = written.survey, cluster.catalogue
        if survey is None or catalogue is None or not survey.decided:
            return
        written_as = [text(field.value) for field in written.selectors]
        abort = _type_failure(survey, written_as)
        denies = not survey.matched and bool(written.driver)
        for field, expression in zip(written.selectors, written_as, strict=True):
            if abort is not None and abort.expression == expression:
                yield self.finding(
                    field,
                    f"uses a value as a different type than {abort.device} publishes: "
                    f"{abort.reason}",
                    _OTHER_TYPE,
                    Severity.DENY if denies and _never_matches(abort, written, cluster) else None,
                )
                continue
            equations = cluster.equations(expression)
            never = {e: why for e in equations if (why := _never_equal(e, equations, catalogue))}
            fatal = {e.part for e in equations} - {e.part for e in equations if e not in never}
            reasons: dict[str, bool] = {}
            for equation, why in never.items():
                required = equation.part > 0 and equation.part in fatal
                reasons[why] = reasons.get(why, False) or required
            for why, required in reasons.items():
                yield self.finding(
                    field,
                    why,
                    _OTHER_TYPE,
                    Severity.DENY if denies and required else None,
                    possible=bool(survey.matched),
                )


def _type_failure(survey: Survey, expressions: Collection[str]) -> Abort | None:
    """The first failure of one of these expressions over a type; None if anything matches."""
    own = (abort for abort in survey.aborts if abort.expression in expressions)
    over_types = (abort for abort in own if _NO_OVERLOAD in abort.reason)
    return next(over_types, None) if not survey.matched else None


def _never_equal(equation: Equation, equations: Sequence[Equation], catalogue: Catalogue) -> str:
    """Why no device's attribute can equal the value that it is compared with; "" if one can.

    Also "" if the expression compares it with the same value in the right type too: then the
    author knows of both types.
    """
    whose = equation.read.domain, equation.read.name
    published = catalogue.kinds(*whose)
    kind = COMPARABLE_TYPES.get(equation.type, "")
    if not published or not kind or not published.isdisjoint(("", kind)):
        return ""
    spellings = {
        COMPARABLE_TYPES.get(other.type, "")
        for other in equations
        if other.read == equation.read and other.value == equation.value != ""
    }
    if not spellings.isdisjoint(published):
        return ""
    return (
        f"compares {'/'.join(whose)} with a {kind}, which it never equals: devices publish "
        f"a {' or a '.join(sorted(published))}"
    )


class UnknownAttributeDomain(Rule):
    """A selector reads from a domain that no device has, or mistypes an attribute's name."""

    id = "FTL007"
    reproduced = True
    name = "unknown-attribute"
    severity = Severity.WARN
    denies_if = "so no device of the driver can match"
    strict = True
    inventory = True
    today = (
        "An unknown domain is an empty map: reading from it ends scheduling with `no such key`, "
        "and `has()` of it is false."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if cluster.catalogue is not None:
            yield from _judged(manifest, cluster, lambda written: self._judge(written, cluster))

    def _judge(self, written: _Written, cluster: Cluster) -> Iterator[Finding]:
        survey, catalogue = written.survey, cluster.catalogue or Catalogue()
        unmatched = survey is not None and survey.decided and not survey.matched
        driver = written.driver if unmatched else ""
        asked = cluster.drivers_asked(survey.selection) if survey is not None else frozenset()
        for field in written.selectors:
            reads = cluster.reads(text(field.value))
            needed = cluster.needed(text(field.value))
            guarded = {(read.field, read.domain) for read in reads if not read.name}
            for read in reads:
                # A driver that is asked for and not there is another rule's.
                may_lack = (read.field, read.domain) in guarded or read.domain in asked
                if message := _unknown_attribute(read, catalogue, may_lack=may_lack):
                    wrong, near = message
                    never = driver and read in needed and not cluster.may_come(driver, read)
                    yield self.finding(
                        field,
                        wrong,
                        f"did you mean {near}?"
                        if near
                        else "see `kubectl get resourceslices -o yaml`",
                        Severity.DENY if never else None,
                        possible=not unmatched,
                    )


def _unknown_attribute(
    read: AttributeRead, catalogue: Catalogue, *, may_lack: bool
) -> tuple[str, str] | None:
    """What is wrong with a read, and the name that was probably meant.

    `may_lack`: the domain may well not be there, so only a typo is a mistake.
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


class ContradictorySelectors(Rule):
    """The selectors of a request, with those of its class, want two values in one place."""

    id = "FTL057"
    reproduced = True
    name = "contradictory-selectors"
    severity = Severity.DENY
    today = "No device can ever match, and nothing says so: the pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for request in manifest.requests:
            yield from of_request(
                [
                    list(self._judge(o.field, _selection(o, cluster), cluster))
                    for o in request.options
                ]
            )
        for spec in manifest.device_classes:
            yield from self._judge(spec, class_selection(spec), cluster)

    def _judge(self, field: Field, selection: Selection, cluster: Cluster) -> Iterator[Finding]:
        if wrong := _contradiction(selection, cluster):
            yield self.finding(
                field.at("selectors"),
                wrong,
                "all selectors of a request and of its class must hold at once: join "
                "alternatives with ||, or use firstAvailable",
            )


def _selection(option: ManifestOption, cluster: Cluster) -> Selection:
    """The selectors of an option, and those of its class as far as it is known."""
    own = tuple(text(field.value) for field in option.selectors)
    return cluster.selection(option) or Selection((), own)


def _contradiction(selection: Selection, cluster: Cluster) -> str:
    """Which two things no device has at once, "" if there are none."""
    if len(drivers := cluster.drivers_asked(selection)) > 1:
        return f"asks for devices of {' and of '.join(sorted(drivers))} at once"
    allowed: dict[AttributeRead, frozenset[tuple[str, str]]] = {}
    for expression in (*selection.of_class, *selection.of_request):
        for read, values in required_values(cluster.equations(expression)):
            before = allowed.get(read, values)
            if not before & values:
                either, other = (", ".join(sorted(text for _, text in v)) for v in (before, values))
                return f"wants {read.domain}/{read.name} to be {either} and {other} at once"
            allowed[read] = before & values
    return ""
