"""Which licences the packages have that Fettle ships; `python -m tests.supply.licences` fails if
one is not allowed."""

import sys
from importlib.metadata import Distribution

from license_expression import ExpressionError, get_spdx_licensing

from tests.supply.runtime import REPOSITORY, read_lock, runtime_packages

ALLOWED = frozenset(
    {
        *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0"),
        "MPL-2.0",  # asks for the sources of its own files only, which we ship as they are
    }
)
_SPDX = {
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""How packages without an SPDX expression name the licences that are allowed."""
_READ = {"cel-python": "Apache-2.0", "promql-parser": "MIT"}
"""Packages that state their licence in a file only, as it was read."""
_LICENSING = get_spdx_licensing()


def licence_of(package: Distribution) -> str:
    """As an SPDX expression, if that can be told; "" if it names none."""
    metadata = package.metadata.json
    if expression := metadata.get("license_expression"):
        return str(expression)
    named = str(metadata.get("license", ""))
    if named and "\n" not in named:  # some put the whole text there
        return _SPDX.get(named.lower(), named)
    classifiers = metadata.get("classifier", [])
    names = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")]
    if not names:
        return _READ.get(package.name, "")
    return " AND ".join(_SPDX.get(name.lower(), name) for name in names)


def is_allowed(expression: str) -> bool:
    """Whether we may choose to follow allowed licences only."""
    try:
        parsed = _LICENSING.parse(expression)
    except ExpressionError:
        return False
    if parsed is None:
        return False
    allows = {
        symbol: _LICENSING.TRUE if symbol.key in ALLOWED else _LICENSING.FALSE
        for symbol in parsed.symbols
    }
    return bool(parsed.subs(allows, simplify=True) == _LICENSING.TRUE)


def complaint(package: Distribution) -> str:
    """What is wrong with its licence; "" if nothing is."""
    expression = licence_of(package)
    if is_allowed(expression):
        return ""
    says = f"is under {expression}" if expression else "does not say its licence"
    return (
        f"{package.name} {package.version} {says}, which tests/supply/licences.py does not "
        "allow: do without the package, or add the licence there once it was read"
    )


def main() -> None:
    packages = runtime_packages(read_lock((REPOSITORY / "requirements.lock").read_text()))
    if complaints := [told for package in packages if (told := complaint(package.installed))]:
        sys.exit("\n".join(complaints))
    print(f"The licences of {len(packages)} packages are allowed.")


if __name__ == "__main__":
    main()
