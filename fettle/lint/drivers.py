"""The opaque configurations of drivers: JSON Schemas, feature gates, validators.

A driver's file in `schemas/` lists its API versions and kinds. Each kind has a schema, the features
that some values need, and the types of device it applies to. A function checks what a schema cannot
say: ours, or one that an installed package offers under the entry point `fettle.drivers`. Schemas
are data and may come from an operator; code may not.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from fettle.api import quantities
from fettle.api.raw import text
from fettle.lint.manifests import Field
from fettle.lint.names import nearest
from fettle.lint.schemas import Problem, Schema
from fettle.model import SettingsError

ENTRY_POINT = "fettle.drivers"
Validator = Callable[[str, Field], Iterator[Problem]]
"""(kind, parameters) → what is wrong; named by driver in the entry point."""


class DriverGate(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Values at `path` that need a feature of the driver to be on."""

    feature: str
    path: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def applies(self, parameters: Field) -> bool:
        value = parameters.at(*self.path).value
        return value in self.values if self.values else value is not None


class KindOfConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """One kind of configuration. `devices` are the values of the attribute `type` it applies to."""

    kind: str
    schema: dict[str, Any]
    gates: tuple[DriverGate, ...] = ()
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Schema(self.schema)  # refuses a wrong schema when the file is read


class Driver(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A driver's configurations. `features` are its feature gates, true if on by default.

    `classes` are the DeviceClasses that come with the driver, each with the `type` of its devices.
    `attributes` are all that its devices have in its own domain, whatever their type, their node
    and the driver's settings are; none if that is not known.
    """

    driver: str
    api_versions: tuple[str, ...]
    kinds: tuple[KindOfConfig, ...]
    features: dict[str, bool] = {}
    classes: dict[str, str] = {}
    attributes: tuple[str, ...] = ()

    @property
    def kind_names(self) -> tuple[str, ...]:
        return tuple(kind.kind for kind in self.kinds)

    def kind(self, api_version: str, kind: str) -> KindOfConfig | None:
        found = (k for k in self.kinds if k.kind == kind and api_version in self.api_versions)
        return next(found, None)


class Missing(NamedTuple):
    """A feature that a value needs and that is off; `declared` if the settings say so."""

    feature: str
    field: Field
    declared: bool


class ConfigValidation(NamedTuple):
    """What is wrong with a configuration, which features it lacks, and its kind if that is known.

    `undecided` is why it could not be checked in full, "" if it was.
    """

    problems: tuple[Problem, ...]
    missing: tuple[Missing, ...] = ()
    kind: KindOfConfig | None = None
    undecided: str = ""


class Drivers:
    """The drivers whose configurations are known: shipped ones, and `given` ones that replace them.

    `features` overrides, by driver, which feature gates are on.
    """

    def __init__(
        self,
        given: Mapping[str, Driver] | None = None,
        features: Mapping[str, Mapping[str, bool]] | None = None,
    ) -> None:
        self._given = given or {}
        self._features = features or {}

    def get(self, name: str) -> Driver | None:
        return self._given.get(name) or shipped().get(name)

    def attributes(self, name: str) -> tuple[str, ...]:
        """All attributes of a driver's devices in its own domain; none if they are not known."""
        driver = self.get(name)
        return driver.attributes if driver is not None else ()

    def validate(self, driver: Driver, parameters: Field) -> ConfigValidation:
        """What the driver would refuse in these parameters when it prepares the claim."""
        api_version, name = parameters.text("apiVersion"), parameters.text("kind")
        kind = driver.kind(api_version, name)
        if kind is None:
            return ConfigValidation((_unknown_kind(driver, parameters),))
        problems = list(Schema(kind.schema).problems(parameters, skip=("apiVersion", "kind")))
        undecided, sound = "", not any(problem.denies for problem in problems)
        if sound and (validate := validators().get(driver.driver)) is not None:
            try:
                problems += validate(name, parameters)
            except Exception as error:  # code of another package must not stop the other rules
                undecided = f"the check of {driver.driver} failed: {error!r}"
        missing = (self._missing(driver, gate, parameters) for gate in kind.gates)
        known = tuple(m for m in missing if m is not None)
        return ConfigValidation(tuple(problems), known, kind, undecided)

    def _missing(self, driver: Driver, gate: DriverGate, parameters: Field) -> Missing | None:
        declared = self._features.get(driver.driver, {}).get(gate.feature)
        on = driver.features.get(gate.feature, False) if declared is None else declared
        if on or not gate.applies(parameters):
            return None
        return Missing(gate.feature, parameters.at(*gate.path), declared is not None)


NO_DRIVERS = Drivers()


def _unknown_kind(driver: Driver, parameters: Field) -> Problem:
    """What is wrong with the kind of a configuration. One that resembles none that is known, or
    another version of a known group, may be newer than the schema."""
    api_version, name = parameters.text("apiVersion"), parameters.text("kind")
    kinds = ", ".join(f"{v} {k.kind}" for v in driver.api_versions for k in driver.kinds)
    named = {"apiVersion": api_version, "kind": name}
    if lacking := " and ".join(field for field, value in named.items() if not value):
        return Problem(parameters, f"must have {lacking}: {driver.driver} knows {kinds}")
    groups = {version.partition("/")[0] for version in driver.api_versions}
    near = "" if name in driver.kind_names else nearest(name, driver.kind_names)
    meant = f"; did you mean {near}?" if near else ""
    return Problem(
        parameters,
        f"{driver.driver} does not know {api_version} {name}, only {kinds}{meant}",
        denies=bool(near) or api_version.partition("/")[0] not in groups,
    )


@cache
def shipped() -> Mapping[str, Driver]:
    """The drivers whose files are shipped with Fettle, by name."""
    folder = files("fettle.lint") / "schemas"
    found = [f for f in folder.iterdir() if f.name.endswith(".json")]
    drivers = [read_driver(f.read_bytes(), f.name) for f in sorted(found, key=lambda f: f.name)]
    return {driver.driver: driver for driver in drivers}


def read_driver(content: bytes, where: str) -> Driver:
    """Decode a driver's file; raises SettingsError with the file and what is wrong."""
    try:
        return msgspec.json.decode(content, type=Driver)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"driver schema {where}: {error}") from error


@cache
def validators() -> Mapping[str, Validator]:
    """Validators by driver: our own, replaced by those of installed packages."""
    found = {point.name: _loaded(point) for point in metadata.entry_points(group=ENTRY_POINT)}
    return {**VALIDATORS, **found}


def _loaded(point: metadata.EntryPoint) -> Validator:
    """The function; if it cannot be imported, one that raises the reason when it is called."""
    try:
        validator: Validator = point.load()
    except Exception as error:
        reason = f"{point.value} cannot be loaded: {error!r}"

        def validator(kind: str, parameters: Field) -> Iterator[Problem]:
            raise RuntimeError(reason)

    return validator


def parameters_of(config: Field) -> tuple[str, Field]:
    """The driver and the parameters of one entry of `devices.config`."""
    opaque = config.at("opaque")
    return text(opaque.raw().get("driver")), opaque.at("parameters")


# --- our own validators, after the drivers' code:
# NVIDIA: GetTimeSlicingConfig, GetMpsConfig and the limits of MpsPerDevicePinnedMemoryLimit in its
# resource API; the example driver: GpuConfig.Validate

_MEBIBYTE = 2**20
_BY_STRATEGY = {
    "TimeSlicing": ("timeSlicingConfig", ("mpsConfig", "spacePartitioningConfig")),
    "MPS": ("mpsConfig", ("timeSlicingConfig",)),
    "SpacePartitioning": ("spacePartitioningConfig", ("timeSlicingConfig",)),
}
_DEVICE = re.compile(r"\d{1,4}|(GPU|MIG)-[0-9a-fA-F-]+")


def nvidia(kind: str, parameters: Field) -> Iterator[Problem]:
    """GpuConfig and MigDeviceConfig of gpu.nvidia.com."""
    sharing = parameters.at("sharing")
    yield from _one_strategy(sharing)
    mps = sharing.at("mpsConfig")
    limits = [mps.at("defaultPinnedDeviceMemoryLimit")]
    for device, limit in mps.members("defaultPerDevicePinnedMemoryLimit"):
        limits.append(limit)
        if not _DEVICE.fullmatch(device):
            yield Problem(limit, f"{device!r} is neither an index nor the UUID of a device")
    for limit in limits:
        if limit.exists:
            yield from _at_least_a_mebibyte(limit)


def example(kind: str, parameters: Field) -> Iterator[Problem]:
    """GpuConfig of gpu.example.com."""
    sharing = parameters.at("sharing")
    if not sharing.exists and not parameters.text("mode"):
        yield Problem(sharing, "is required")
    yield from _one_strategy(sharing)


def compute_domain(kind: str, parameters: Field) -> Iterator[Problem]:
    """The allocation mode of a channel: the driver only asks whether it is All."""
    mode = parameters.at("allocationMode")
    if isinstance(mode.value, str) and mode.value not in ("", "Single", "All"):
        message = f"must be one of Single, All, not {mode.value!r}, which counts as Single"
        yield Problem(mode, message, denies=False)


VALIDATORS: Mapping[str, Callable[[str, Field], Iterator[Problem]]] = {
    "compute-domain.nvidia.com": compute_domain,
    "gpu.nvidia.com": nvidia,
    "gpu.example.com": example,
}


def _one_strategy(sharing: Field) -> Iterator[Problem]:
    """The settings of one strategy exclude those of another."""
    strategy = sharing.text("strategy")
    own, others = _BY_STRATEGY.get(strategy, ("", ()))
    for other in others:
        if sharing.at(other).exists:
            yield Problem(sharing.at(other), f"cannot be used with strategy {strategy}, only {own}")


def _at_least_a_mebibyte(limit: Field) -> Iterator[Problem]:
    try:
        amount = quantities.parse(str(limit.value))
    except quantities.Unsure:
        return
    except ValueError:
        yield Problem(limit, f"{limit.value!r} is not a quantity")
        return
    if amount.nano < _MEBIBYTE * 10**9:
        yield Problem(limit, f"{limit.value} is less than 1Mi")
