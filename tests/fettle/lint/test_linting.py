"""Findings that are remembered: they hold for the cluster that they were found in."""

import asyncio
from collections.abc import Iterator

from msgspec.structs import replace

from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.linting import Linter
from fettle.lint.manifests import Manifest
from tests.controlplane import objects as api
from tests.fettle.lint.clusters import view_of
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.tables.case import claim, exactly


class Thorough(Rule):
    """Finds a class that is missing, and takes its time to say so."""

    id = "FTL999"
    name = "thorough"
    severity = Severity.WARN
    today = "It is missing."

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_done = False

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        if cluster.device_class(GPU) is None:
            self.began.set()
            while not self.is_done:
                yield None
            yield self.finding(manifest.root, "the class is missing")


async def test_what_was_found_in_an_older_cluster_is_not_remembered_for_a_newer_one() -> None:
    rule = Thorough()
    linter = Linter([rule])
    without, with_class = view_of([api.node("n")]), view_of([api.device_class(GPU)])
    asking, asking_for_two = Manifest(claim(exactly())), Manifest(claim(exactly(count=2)))
    slow = asyncio.create_task(linter.lint(asking, without))
    await rule.began.wait()
    assert await linter.lint(asking_for_two, with_class) == []
    rule.is_done = True
    assert len(await slow) == 1
    assert await linter.lint(asking, with_class) == []


async def test_a_class_that_cannot_be_read_is_not_called_absent() -> None:
    linter, asking = Linter(), Manifest(claim(exactly()))
    without = view_of([api.node("n")])
    unread = replace(without, quarantined={f"DeviceClass {GPU}": "it cannot be read"})
    assert [f.rule for f in await linter.lint(asking, without)] == ["FTL001"]
    assert await linter.lint(asking, unread) == []
