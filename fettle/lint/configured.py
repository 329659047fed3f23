"""Checks the rules, drivers and features that the settings name against those that exist: a
mistyped name would silently do nothing. Schemas of drivers' configurations may be an operator's
own, such as a mounted ConfigMap.
"""

from collections.abc import Iterable
from pathlib import Path

from fettle.config import LintSettings, Settings
from fettle.lint.checks import IDS
from fettle.lint.drivers import Driver, Drivers, read, shipped
from fettle.lint.rules.versions import GATES
from fettle.model import SettingsError


def configured_drivers(settings: LintSettings) -> Drivers:
    """The shipped drivers with those of the settings; raises SettingsError with the file."""
    return Drivers(_given(settings), settings.driver_features)


def _given(settings: LintSettings) -> dict[str, Driver]:
    given: dict[str, Driver] = {}
    if settings.driver_schemas is not None:
        folder = Path(settings.driver_schemas)
        if not folder.is_dir():
            raise SettingsError(f"lint.driverSchemas: {folder} is not a folder")
        for path in sorted(folder.glob("*.json")):
            try:
                driver = read(path.read_bytes(), path.name)
            except OSError as error:
                raise SettingsError(f"driver schema {path}: {error.strerror}") from error
            given[driver.driver] = driver
    return given


def check_settings(settings: Settings) -> None:
    """Raises SettingsError for an unknown rule, feature gate or driver feature."""
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
    known = {**shipped(), **_given(settings)}
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
