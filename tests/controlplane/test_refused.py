"""What lint denies since the API server refuses it: by the API server's own word, and the fields
that Kubernetes' objects have."""

from __future__ import annotations

from fettle.lint.shapes import kubernetes, place
from tests.controlplane import kubernetes_shapes
from tests.controlplane.api import Api, ApiError
from tests.controlplane.control_plane import ControlPlane
from tests.fettle.lint.builders import Object
from tests.fettle.lint.test_refused import ROWS

NO_PATH = (KeyError, LookupError)


async def refusal(api: Api, object: Object) -> str:
    """What the API server says to kubectl, which has it check fields strictly; "" if it accepts."""
    try:
        await api.create(object, dry_run=True, strict=True)
    except ApiError as error:
        return str(error)
    except NO_PATH as error:
        return f"it serves no such kind: {error}"
    return ""


async def test_the_api_server_refuses_what_lint_denies_and_accepts_the_near_misses(
    api: Api,
) -> None:
    wrong = {}
    for row in ROWS:
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
