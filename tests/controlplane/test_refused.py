"""What lint denies since the API server refuses it: by the API server's own word, and the fields
that Kubernetes' objects have."""

from __future__ import annotations

import random

import aiohttp
import msgspec
import pytest

from fettle.lint import Severity
from fettle.lint.shapes import Kubernetes, kubernetes, place, whole_objects
from fettle.lint.shapes.customs import shipped_customs
from tests.controlplane import kubernetes_shapes, shipped
from tests.controlplane.api import Api, ApiError
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import (
    define_policies,
    define_workloads,
    feature_definitions,
    queued_definitions,
)
from tests.fettle.lint.builders import Object, checked
from tests.fettle.lint.edits import edited
from tests.fettle.lint.tables.refused import CUSTOM, JUDGED, STATED
from tests.fettle.lint.tables.refused_details import DETAILS
from tests.fettle.lint.test_tables import CASES

NO_PATH = (KeyError, LookupError)


async def refusal(api: Api, object: Object) -> str:
    """What the API server says to kubectl, which has it check fields strictly; "" if it accepts."""
    try:
        await api.create(object, dry_run=True, strict=True)
    except ApiError as error:
        return str(error)
    except aiohttp.ServerDisconnectedError:
        return "it panics"  # 1.37.1 does, of a successPolicy without completions
    except NO_PATH as error:
        return f"it serves no such kind: {error}"
    return ""


async def test_the_api_server_refuses_what_lint_denies_and_accepts_the_near_misses(
    api: Api,
) -> None:
    wrong = {}
    for row in (*JUDGED, *DETAILS):
        said = await refusal(api, row.object)
        if bool(said) != bool(row.says):
            wrong[str(row)] = said or "accepted"
    assert wrong == {}


async def test_the_fields_are_those_of_the_api_server(control_plane: ControlPlane) -> None:
    """Of the newest version; the script that is tested here reads those of older ones."""
    served = await kubernetes_shapes.served(control_plane)
    known = kubernetes()
    for name, fields in kubernetes_shapes.types_of(served).items():
        now = {
            f: place(text).type for f, text in known.types[name].items() if not place(text).until
        }
        assert now == {f: place(text).type for f, text in fields.items()}, name


def test_the_fields_of_whole_objects_are_those_beside_kubernetes_source() -> None:
    made = kubernetes_shapes.wholes()
    assert whole_objects() == msgspec.convert(made, Kubernetes)


EDITS = 1500
NOT_LOOKED_AT = ("metadata.namespace", "expression", "finalizers")
"""Whether a namespace exists depends on the cluster; expressions are compiled elsewhere."""
FOUND = 0.95
"""How much of what the API server refuses lint finds: it does not have all of its validation."""


@pytest.mark.parametrize("seed", [1])
async def test_random_slips_are_denied_only_if_the_api_server_refuses_them_and_most_are_found(
    api: Api, seed: int
) -> None:
    """`python -m pytest … -k slips` with another seed tries others."""
    chance = random.Random(seed)
    sound = [o for o in _sound() if not denials(o) and not await refusal(api, o)]
    assert len(sound) > 100
    wrongly, missed, refused = {}, {}, 0
    for _ in range(EDITS):
        what, made = edited(chance.choice(sound), chance)
        said = await refusal(api, made)
        denied = denials(made)
        if denied and not said:
            wrongly[what] = denied
        elif said and not any(part in what for part in NOT_LOOKED_AT):
            refused += 1
            if not denied:
                missed[what] = said[-200:]
    assert wrongly == {}
    assert refused > EDITS / 3
    assert 1 - len(missed) / refused > FOUND, missed


def _sound() -> list[Object]:
    """Objects of the tables, of kinds whose fields are known, without namespaces of their own."""
    rows = [row.object for row in (*JUDGED, *DETAILS) if not row.says]
    objects = [*rows, *(case.object for case in CASES)]
    known = kubernetes()
    return [o for o in objects if known.type_of(o["apiVersion"], o["kind"])]


def denials(object: Object) -> list[str]:
    return [str(found) for found in checked(object) if found.severity is Severity.DENY]


async def test_the_api_server_refuses_what_definitions_of_custom_resources_do(api: Api) -> None:
    await define_policies(api)
    await define_workloads(api)
    await shipped.apply(api, [*queued_definitions(), *feature_definitions()])
    wrong = {}
    for row in (*CUSTOM, *STATED):
        said = await refusal(api, row.object)
        if bool(said) != bool(row.says):
            wrong[str(row)] = said or "accepted"
    assert wrong == {}


def test_the_fields_of_custom_resources_are_those_of_their_definitions() -> None:
    assert shipped_customs() == kubernetes_shapes.customs()
