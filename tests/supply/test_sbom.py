"""The list of what Fettle ships is what the lock says, in the form that tools read."""

import json

import pytest

from tests.supply.runtime import REPOSITORY, LockMismatch
from tests.supply.sbom import make_sbom

LOCK = (REPOSITORY / "requirements.lock").read_text()


def test_it_holds_to_the_schema_of_cyclonedx() -> None:
    # Imported here: it takes longer than everything else that tests import.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(make_sbom(LOCK)) is None


def test_each_package_has_its_version_licence_and_the_hashes_of_the_lock() -> None:
    listed = {each["name"]: each for each in json.loads(make_sbom(LOCK))["components"]}
    assert {"aiohttp", "msgspec", "yarl"} <= set(listed), "also what others need"
    assert not {"pytest", "ruff", "cyclonedx-python-lib"} & set(listed), "no tools"
    for name, each in listed.items():
        assert f"\n{name}=={each['version']} " in f"\n{LOCK}"
        assert each["licenses"], name
        assert each["hashes"], name
        assert all(f"sha256:{one['content']}" in LOCK for one in each["hashes"])


def test_what_needs_what_is_told() -> None:
    sbom = json.loads(make_sbom(LOCK))
    needs = {each["ref"]: each.get("dependsOn", []) for each in sbom["dependencies"]}
    (aiohttp,) = [ref for ref in needs if ref.startswith("aiohttp@")]
    assert [ref for ref in needs[aiohttp] if ref.startswith("yarl@")]
    assert aiohttp in needs[sbom["metadata"]["component"]["bom-ref"]]


def test_another_version_than_the_locks_is_told() -> None:
    (line,) = [line for line in LOCK.splitlines() if line.startswith("msgspec==")]
    other = LOCK.replace(line, "msgspec==0.0.1 \\")
    with pytest.raises(LockMismatch, match=r"msgspec .* but requirements.lock has 0.0.1: run make"):
        make_sbom(other)
