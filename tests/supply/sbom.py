"""`make sbom`: what Fettle needs at run time, as CycloneDX 1.6 in JSON.

Of each package the licence and the hashes that the lock allows: one for each file in which this
version may be installed. It is for the system and the version of Python that it is made on.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import distribution

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tests.supply.licences import licence_of
from tests.supply.runtime import OURS, REPOSITORY, our_needs, read_lock, runtime_packages


def make_sbom(lock: str) -> str:
    """Raises LockMismatch if something else is installed than the lock says."""
    packages = runtime_packages(read_lock(lock))
    parts = {package.name: _component(package.name, package.sha256) for package in packages}
    root = _component(OURS, (), ComponentType.APPLICATION)
    bom = Bom(components=parts.values())
    bom.metadata.component = root
    bom.register_dependency(root, [parts[name] for name in our_needs()])
    for package in packages:
        bom.register_dependency(parts[package.name], [parts[name] for name in package.needs])
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _component(
    name: str, sha256: Sequence[str], kind: ComponentType = ComponentType.LIBRARY
) -> Component:
    installed = distribution(name)
    return Component(
        name=name,
        type=kind,
        version=installed.version,
        bom_ref=f"{name}@{installed.version}",
        purl=PackageURL("pypi", name=name, version=installed.version),
        licenses=[LicenseFactory().make_from_string(licence_of(installed))],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in sha256],
    )


if __name__ == "__main__":
    sys.stdout.write(make_sbom((REPOSITORY / "requirements.lock").read_text()) + "\n")
