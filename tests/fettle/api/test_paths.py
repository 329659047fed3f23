"""URL paths of the API server: made in one place, and no name leads out of its segment."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from fettle.api import api_path, group_path, kinds
from fettle.model import BadInput

ROOT = Path(__file__).parents[3]
MAKER = ROOT / "fettle/api/api_server.py"
SENDERS = frozenset(("get", "create", "replace", "patch", "delete", "stream"))


def test_paths_are_those_of_the_api_server() -> None:
    assert api_path("v1", "nodes") == "/api/v1/nodes"
    assert api_path("v1", "nodes", name="n1", subresource="status") == "/api/v1/nodes/n1/status"
    jobs = api_path("batch/v1", "jobs", namespace="ml", name="j")
    assert jobs == "/apis/batch/v1/namespaces/ml/jobs/j"
    assert kinds.CLAIM.path_of("c", "ml") == (
        "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c"
    )
    assert group_path("apps") == "/apis/apps"
    assert group_path("", "v1") == "/api/v1"


@pytest.mark.parametrize("name", [".", "..", "../../victim/jobs/backup", "a/b", "a%2Fb", "/"])
def test_what_would_lead_elsewhere_is_refused_as_a_name_and_as_a_namespace(name: str) -> None:
    with pytest.raises(BadInput, match="would lead elsewhere"):
        api_path("v1", "pods", namespace="ml", name=name)
    with pytest.raises(BadInput, match="would lead elsewhere"):
        api_path("v1", "pods", namespace=name, name="p")


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_whatever_the_names_are_they_stay_in_their_segments(namespace: str, name: str) -> None:
    try:
        path = api_path("v1", "pods", namespace=namespace, name=name, subresource="status")
    except (BadInput, UnicodeEncodeError):
        return
    url = URL("http://server" + path)
    assert not url.query_string
    assert not url.fragment
    assert url.parts == ("/", "api", "v1", "namespaces", namespace, "pods", name, "status")


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for room in ("fettle", "extender", "webhook", "certs"):
        for file in sorted((ROOT / room).rglob("*.py")):
            if file != MAKER:
                yield file, ast.parse(file.read_text())


def _text(node: ast.AST) -> str:
    """The constant text of a string or f-string, with {} for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return ""


def _is_made_by_hand(node: ast.AST) -> bool:
    """Whether it is a path of an object, or one is made of it; discovery's and reviews' are
    constants."""
    text = _text(node)
    return "/namespaces/" in text or (text.startswith(("/api/", "/apis/")) and "{" in text)


def _is_sent_made_by_hand(node: ast.AST) -> bool:
    """Whether a path that is built in place is given to a session."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SENDERS
        and ast.unparse(node.func.value).lower().endswith("session")
        and bool(node.args)
        and isinstance(node.args[0], ast.JoinedStr | ast.BinOp)
    )


def test_nobody_else_makes_a_path() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and (_is_made_by_hand(node) or _is_sent_made_by_hand(node))
    ]
    assert found == []


def test_a_path_that_is_made_by_hand_would_be_found() -> None:
    for code in (
        'f"/api/v1/nodes/{name}"',
        '"/apis/batch/v1/namespaces/{}/jobs/{}".format(a, b)',
        'self._session.patch(f"{path}/status", body)',
        'session.get(kind.path + "/" + name)',
    ):
        nodes = list(ast.walk(ast.parse(code)))
        assert any(_is_made_by_hand(one) or _is_sent_made_by_hand(one) for one in nodes), code
