"""Runs the rules on one object: surveys the devices it asks for, then applies each rule.

Findings are cached: templates make the same claim over and over, and an object that differs from a
recent one only by its name gets the same findings. The rules, drivers and features that the
settings name are checked here too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fettle.cluster import View
from fettle.config import LintSettings, Settings
from fettle.lint.checks import IDS
from fettle.lint.cluster import Cluster
from fettle.lint.drivers import NO_DRIVERS, Driver, Drivers, read_driver, shipped
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.rules import RULES
from fettle.lint.rules.api_versions import GATES
from fettle.lint.survey.fleet import Fleet
from fettle.lint.survey.matching import Evaluator
from fettle.model import Policies, RuleSeverity, SettingsError, Validation
from fettle.pacing import pause, run_within

SURVEY_WAIT_S = 0.3
"""How long an object waits for its surveys; after that, rules on inventory are silent."""
_MAX_CACHED = 512
_MAX_KEY_BYTES = 16 * 1024

DEFAULT_LEVELS = Validation()


class _Epoch(NamedTuple):
    """What findings about a claim depend on, besides the claim.

    Parts of a view stay the same object while nothing in them changes.
    """

    devices: int = 0
    unknown: frozenset[str] = frozenset()
    classes: object = None
    quotas: object = None
    compute_domains: object = None

    def is_same(self, other: "_Epoch") -> bool:
        held = zip(self[2:], other[2:], strict=True)
        return self[:2] == other[:2] and all(one is two for one, two in held)


class Linter:
    """Runs rules on objects; keeps its surveys of the fleet from one object to the next."""

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        evaluator: Evaluator | None = None,
        *,
        drivers: Drivers = NO_DRIVERS,
        disabled: frozenset[str] = frozenset(),
        survey_wait_s: float = SURVEY_WAIT_S,
    ) -> None:
        self._rules = rules
        self._fleet = Fleet(evaluator)
        self._drivers = drivers
        self._disabled = disabled
        self._survey_wait_s = survey_wait_s
        self._cache: dict[bytes, tuple[Finding, ...]] = {}
        self._epoch = _Epoch()

    async def lint(
        self,
        manifest: Manifest,
        view: View,
        levels: Validation = DEFAULT_LEVELS,
        *,
        complete: bool = True,
        unknown: frozenset[str] = frozenset(),
        most: int | None = None,
    ) -> list[Finding]:
        """What is wrong with the object, in the order of the rules; at most so many findings of one
        rule and severity.

        `complete` false: the view holds some objects of the cluster, not all. `unknown` are kinds
        that are not in the view, though the cluster may have such objects.
        """
        cluster = Cluster(
            view,
            self._fleet,
            complete=complete,
            unknown=unknown,
            drivers=self._drivers,
            disabled=self._disabled,
        )
        if cluster.complete:
            for _ in range(2 if manifest.device_classes else 1):
                selections = await run_within(lambda: list(cluster.selections(manifest)))
                await self._fleet.prepare(view, selections, self._survey_wait_s)
        found = await self._found(manifest, cluster, most)
        rules = {rule.id: rule for rule in self._rules}
        return [
            said
            for finding in found
            if (said := _at_level(finding, rules[finding.rule], manifest, levels)) is not None
        ]

    async def _found(
        self, manifest: Manifest, cluster: Cluster, most: int | None
    ) -> tuple[Finding, ...]:
        key = self._key(manifest, cluster, most)
        if key is not None and (cached := self._cache.get(key)) is not None:
            return cached
        epoch = self._epoch
        found = await run_within(lambda: tuple(self._run_rules(manifest, cluster, most)))
        if epoch is not self._epoch:
            return found  # meanwhile another object was checked against a newer view
        if key is not None and not any(f.severity is Severity.UNDECIDED for f in found):
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[key] = found
        return found

    def _run_rules(
        self, manifest: Manifest, cluster: Cluster, most: int | None
    ) -> Iterator[Finding]:
        for rule in self._rules:
            told: Counter[Severity] = Counter()
            for finding in rule.check(manifest, cluster):
                pause()
                if finding is None:
                    continue
                if told[finding.severity] == most:
                    if finding.severity is rule.severity and not rule.denies_if:
                        break  # a worse one can no longer come
                    continue
                told[finding.severity] += 1
                yield finding
            pause()

    def _key(self, manifest: Manifest, cluster: Cluster, most: int | None) -> bytes | None:
        """All that rules read of a claim or template; None for other objects."""
        if not cluster.complete or not manifest.claims:  # in this order: to read them takes time
            return None
        view = cluster.view
        known = (view.classes, view.quotas, view.compute_domains)
        epoch = _Epoch(self._fleet.version, cluster.unknown, *known)
        if not epoch.is_same(self._epoch):
            self._cache.clear()
            self._epoch = epoch
        spec = manifest.object.get("spec")
        said = (most, manifest.written_as, manifest.kind, manifest.namespace, spec)
        try:
            key = msgspec.json.encode(said)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None  # YAML has values that JSON does not have
        return key if len(key) <= _MAX_KEY_BYTES else None


def levels_for(
    manifest: Manifest, view: View, policies: Policies, cluster_wide: Validation
) -> Validation:
    """How severe findings are: set cluster-wide, and overridden by the policy that applies."""
    labels = view.namespaces.get(manifest.namespace) if view.synced else None
    policy = policies.resolve(manifest.annotations, labels, view.policies).policy
    return Validation(
        strict=cluster_wide.strict or policy.validation.strict,
        rules={**cluster_wide.rules, **policy.validation.rules},
    )


def _at_level(
    finding: Finding, rule: Rule, manifest: Manifest, levels: Validation
) -> Finding | None:
    """The finding with its severity for this object and namespace; None if it is switched off."""
    level = levels.rules.get(rule.id)
    if level is RuleSeverity.OFF:
        return None
    if finding.severity is Severity.UNDECIDED:
        return finding
    severity: Severity = finding.severity
    if level is not None:
        severity = Severity(level.value)
    elif levels.strict and rule.strict and not finding.possible:
        severity = Severity.DENY
    if manifest.late and not (rule.denies_pods or levels.strict):
        severity = Severity.WARN
    if severity is finding.severity:
        return finding
    return msgspec.structs.replace(finding, severity=severity)


# --- what the settings name


def configured_drivers(settings: LintSettings) -> Drivers:
    """The shipped drivers and those of the settings; raises SettingsError with the file."""
    return Drivers(_drivers_of(settings), settings.driver_features)


def _drivers_of(settings: LintSettings) -> dict[str, Driver]:
    found: dict[str, Driver] = {}
    if settings.driver_schemas is not None:
        folder = Path(settings.driver_schemas)
        if not folder.is_dir():
            raise SettingsError(f"lint.driverSchemas: {folder} is not a folder")
        for path in sorted(folder.glob("*.json")):
            try:
                driver = read_driver(path.read_bytes(), path.name)
            except OSError as error:
                raise SettingsError(f"driver schema {path}: {error.strerror}") from error
            found[driver.driver] = driver
    return found


def check_settings(settings: Settings) -> None:
    """Raises SettingsError for an unknown rule, feature gate or driver feature.

    A mistyped name would silently do nothing.
    """
    _check_rules("lint.rules", settings.lint.rules)
    for index, policy in enumerate(settings.policies):
        _check_rules(f"policies[{index}].validation.rules", policy.validation.rules)
    for gate in settings.lint.disabled_features:
        _check_known("lint.disabledFeatures", "no rule depends on the feature gate", gate, GATES)
    _check_features(settings.lint)


def _check_rules(field: str, named: Iterable[str]) -> None:
    for name in named:
        if name not in IDS:
            raise SettingsError(
                f"settings: {field}: unknown rule {name!r}; docs/rules.md lists "
                f"{min(IDS)} to {max(IDS)}"
            )


def _check_features(settings: LintSettings) -> None:
    known = {**shipped(), **_drivers_of(settings)}
    for name, features in settings.driver_features.items():
        _check_known("lint.driverFeatures", "no schema is known for the driver", name, known)
        driver = known[name]
        gated = {gate.feature for kind in driver.kinds for gate in kind.gates}
        for feature in features:
            _check_known(
                f"lint.driverFeatures.{name}",
                "nothing in its configurations needs the feature",
                feature,
                sorted(gated | driver.features.keys()),
            )


def _check_known(field: str, wrong: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        there_are = ", ".join(known) or "none"
        raise SettingsError(f"settings: {field}: {wrong} {name!r}; known: {there_are}")
