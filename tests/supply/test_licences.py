"""`make check` fails where a package that Fettle ships has a licence that is not allowed."""

from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from tests.supply.licences import complaint, is_allowed, licence_of
from tests.supply.runtime import REPOSITORY, read_lock, runtime_packages

GPL = "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
BSD = "Classifier: License :: OSI Approved :: BSD License"
MIT = "Classifier: License :: OSI Approved :: MIT License"


def package(folder: Path, *headers: str) -> Distribution:
    info = folder / "other-1.2.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: other", "Version: 1.2", *headers]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    return PathDistribution(info)


def test_all_that_fettle_ships_is_allowed() -> None:
    packages = runtime_packages(read_lock((REPOSITORY / "requirements.lock").read_text()))
    assert len(packages) > 20
    assert [told for each in packages if (told := complaint(each.installed))] == []


@pytest.mark.parametrize(
    "headers",
    [
        ["License-Expression: GPL-3.0-or-later"],
        ["License-Expression: MIT AND GPL-3.0-only"],
        ["License: GPL"],
        ["License: SSPL-1.0"],
        [GPL],
        [MIT, GPL],
        [],
        ["License-Expression: not ( an expression"],
        ["License: UNKNOWN"],
    ],
)
def test_what_is_not_allowed_is_told(tmp_path: Path, headers: list[str]) -> None:
    told = complaint(package(tmp_path, *headers))
    assert told.startswith("other 1.2 ")
    assert "does not allow: do without the package, or add the licence there" in told


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        (["License-Expression: MIT OR GPL-2.0-only"], "MIT OR GPL-2.0-only"),
        (["License: Apache 2.0"], "Apache-2.0"),
        (["License: a whole text", "        of many lines", MIT], "MIT"),
        ([BSD, MIT], "BSD-3-Clause AND MIT"),
    ],
)
def test_each_way_in_which_packages_name_a_licence_is_read(
    tmp_path: Path, headers: list[str], licence: str
) -> None:
    found = package(tmp_path, *headers)
    assert licence_of(found) == licence
    assert is_allowed(licence)
