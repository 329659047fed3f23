"""Settings that name what nobody knows are refused at the start, with what there is."""

from pathlib import Path

import pytest

from fettle.config import Settings, load
from fettle.lint.linter import check_settings
from fettle.model import SettingsError

OWN = """{"driver": "own.example.com", "apiVersions": ["own.example.com/v1"],
 "features": {"Turbo": false}, "kinds": []}"""


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lint: {rules: {FTL999: Deny}}", "lint.rules: unknown rule 'FTL999'"),
        (
            "policies: [{name: a}, {name: b, validation: {rules: {FTL999: Deny}}}]",
            "policies[1].validation.rules: unknown rule 'FTL999'",
        ),
        (
            "lint: {driverFeatures: {gpu.nvidia.com: {TimeSlicingSetings: true}}}",
            "lint.driverFeatures.gpu.nvidia.com: nothing in its configurations needs the feature "
            "'TimeSlicingSetings'; known: DynamicMIG, MPSSupport, PassthroughSupport, "
            "TimeSlicingSettings",
        ),
        ("lint: {driverFeatures: {gpu.nvidia.con: {}}}", "the driver 'gpu.nvidia.con'"),
        (
            "lint: {disabledFeatures: [Nonsense]}",
            "'Nonsense'; known: DRAPrioritizedList, DRADeviceTaints",
        ),
    ],
)
def test_a_name_that_nobody_knows_is_refused_with_its_field(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(SettingsError) as error:
        check_settings(settings(tmp_path, text))
    assert says in str(error.value)


def test_names_that_are_known_pass(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "own.json").write_text(OWN)
    check_settings(
        settings(
            tmp_path,
            "lint:\n"
            "  rules: {FTL010: Warn}\n"
            f"  driverSchemas: {schemas}\n"
            "  driverFeatures:\n"
            "    gpu.nvidia.com: {MPSSupport: true}\n"
            "    own.example.com: {Turbo: true}\n"
            "  disabledFeatures: [DRADeviceTaints]\n",
        )
    )
    check_settings(Settings())
