from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.client import impersonating
from fettle.client.session import Session
from fettle.model import SettingsError
from tests.fettle.client.fake_api import FakeApi

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
PREFIX = "Impersonate-"
TOKEN_CHARACTERS = "!#$&'*+-.^_`|~"  # of RFC 9110, but for %, letters and digits
EVE = {
    "token": "t",
    "as": "eve",
    "as-uid": "u-1",
    "as-groups": ["gpu-users", "system:authenticated"],
    "as-user-extra": {"scopes": ["view", "list"], "example.com/Größe": ["ä"]},
}


def impersonated(api: FakeApi) -> list[dict[str, str]]:
    """What each request that came in said about it."""
    return [
        {name: text for name, text in asked.headers.items() if name.startswith(PREFIX)}
        for asked in api.asked
    ]


async def test_every_request_is_made_as_the_one_whom_the_kubeconfig_says(
    api: FakeApi, tmp_path: Path
) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, user=EVE)) as session:
        await session.get(NODES)
        async with aclosing(session.stream(NODES, {"watch": True})) as chunks:
            await anext(chunks)
        await session.create(LEASES, {"metadata": {"name": "a"}})
        await session.patch(f"{LEASES}/a", {"spec": {"x": 1}})
        await session.replace(f"{LEASES}/a", {"metadata": {"name": "a", "namespace": "ns"}})
    verbs = [asked.verb for asked in api.asked]
    assert verbs == ["list", "watch", "create", "patch", "update"]
    told = {
        "Impersonate-User": "eve",
        "Impersonate-Uid": "u-1",
        "Impersonate-Group": "gpu-users,system:authenticated",
        "Impersonate-Extra-scopes": "view,list",
        "Impersonate-Extra-example.com%2FGr%C3%B6%C3%9Fe": "ä",
    }
    assert impersonated(api) == [told] * len(verbs)
    assert {asked.headers["Authorization"] for asked in api.asked} == {"Bearer t"}


async def test_impersonation_is_read_again_with_the_credentials(
    api: FakeApi, tmp_path: Path
) -> None:
    api.token = "new"
    user = {"token": "old", "as": "eve"}
    async with await Session.open(api.kubeconfig(tmp_path, user=user)) as session:
        api.kubeconfig(tmp_path, user={"token": "new", "as": "adam"})
        await session.get(NODES)
    assert impersonated(api) == [{"Impersonate-User": name} for name in ("eve", "adam")]


@pytest.mark.parametrize(
    "user", [{}, {"as": ""}, {"as": None, "as-groups": [], "as-user-extra": {}}, {"as-uid": ""}]
)
async def test_who_impersonates_nobody_says_nothing(
    api: FakeApi, tmp_path: Path, user: dict[str, Any]
) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, user=user)) as session:
        await session.get(NODES)
    assert impersonated(api) == [{}]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"as-uid": "u-1"}, "the user has as-uid, as-groups or as-user-extra without as"),
        ({"as-groups": ["a"]}, "the user has as-uid, as-groups or as-user-extra without as"),
        ({"as": "", "as-user-extra": {"a": ["b"]}}, "as-user-extra without as"),
        ({"as": 5}, r"impersonation by the user: Expected `str \| null`, got `int` - at `\$.as`"),
        ({"as": "eve", "as-groups": "a"}, r"got `str` - at `\$.as-groups`"),
        ({"as": "eve", "as-user-extra": {"a": "b"}}, r"got `str` - at `\$.as-user-extra"),
        ({"as": "e\nve"}, "as of the user contains a non-printable character"),
        ({"as": "eve", "as-uid": "\x00"}, "as-uid of the user contains a non-printable"),
        ({"as": "eve", "as-groups": ["a", "\ud800"]}, "as-groups of the user contains"),
        ({"as": "eve", "as-user-extra": {"a": ["\r"]}}, "as-user-extra of the user contains"),
        ({"as": "eve", "as-user-extra": {"\n": ["a"]}}, "as-user-extra of the user contains"),
    ],
)
async def test_impersonation_that_cannot_be_asked_for_is_one_sentence(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], said: str
) -> None:
    path = api.kubeconfig(tmp_path, user=user)
    with pytest.raises(SettingsError, match=said) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1))
def test_the_key_of_an_extra_is_a_header_that_can_be_read_back(key: str) -> None:
    ((_, _), (name, _)) = impersonating.headers({"as": "eve", "as-user-extra": {key: ["a"]}})
    escaped = name.removeprefix("Impersonate-Extra-")
    assert all(c.isascii() and (c.isalnum() or c in TOKEN_CHARACTERS + "%") for c in escaped)
    assert unquote(escaped) == key
