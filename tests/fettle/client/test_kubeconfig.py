"""Whatever a kubeconfig holds: a session with the credentials that client-go would take, or one
sentence that names the file.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.client import kubeconfig
from fettle.client.session import Session
from fettle.model import ClusterError, SettingsError
from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import FakeApi

WORDS = st.sampled_from(["c", "u", "x", "exec", "name", "user", "token", "cluster", "server", ""])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.binary(max_size=4)
    | WORDS
    | st.text(max_size=5)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | SCALARS, inner, max_size=3),
    max_leaves=6,
)
SERVERS = st.sampled_from(
    [
        *("https://127.0.0.1:1", "http://127.0.0.1:1", "http://127.0.0.1:1/a b", "127.0.0.1:1"),
        *("http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1:1", "unix:///x", "http://", ""),
        *("http://127.0.0.1:1/\ud800", "http://\ud800"),
    ]
)
AS = {"as": "a", "as-uid": "1", "as-groups": ["g"], "as-user-extra": {"k": ["v"]}}
CERTIFICATE = {"client-certificate-data": "", "client-key-data": ""}
USERS: list[dict[str, Any]] = [
    {"token": "t", "tokenFile": "/absent", **CERTIFICATE, **AS},
    {"username": "n", "password": "p", **CERTIFICATE},
    {"auth-provider": {"name": "oidc", "config": {"id-token": "a.e30.c"}}},
]
WHOLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://127.0.0.1:1",
                "insecure-skip-tls-verify": True,
                "tls-server-name": "name",
                "certificate-authority-data": "",
                "certificate-authority": "",
                "proxy-url": "http://127.0.0.1:1",
            },
        }
    ],
    "users": [{"name": "u", "user": USERS[0]}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "current-context": "x",
}
WHOLES = [WHOLE | {"users": [{"name": "u", "user": user}]} for user in USERS]
PLAIN_USER = {"name": "u", "user": {"token": "t"}}


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all parts, that of the whole first."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from paths(entry, (*path, index))


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return value | {path[0]: replaced(value[path[0]], path[1:], new)}
    return [replaced(one, path[1:], new) if i == path[0] else one for i, one in enumerate(value)]


async def refusal(text: str | bytes) -> str:
    """The error for a kubeconfig with this text, or for its server; "" only if a server answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
        try:
            async with await Session.open(path) as session:
                assert isinstance(session.namespace, str)
                try:
                    await session.get("/version", timeout_s=5)
                except ClusterError as error:
                    return one_line(str(error))
        except SettingsError as error:
            message = one_line(str(error))
        else:
            return ""
    assert str(path) in message
    return message


def one_line(message: str) -> str:
    message.encode()
    assert len(message.splitlines()) == 1
    assert len(message) < 1000
    return message


FIELDS = [(whole, path) for whole in WHOLES for path in sorted(paths(whole), key=str)]


@given(st.sampled_from(FIELDS), ANY, st.booleans())
async def test_any_value_in_any_field_gives_an_error_of_one_line(
    field: tuple[Any, tuple[str | int, ...]], value: Any, plain: bool
) -> None:
    whole, path = field
    spoilt = replaced(whole, path, value)
    if plain and path and path[0] != "users":  # one whose credentials are read
        spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert await refusal(yaml.safe_dump(spoilt, allow_unicode=True))


@given(SERVERS, st.sampled_from(["http://127.0.0.1:1", "127.0.0.1", "http://[::1", "x://y", ""]))
async def test_any_server_and_proxy_url_gives_an_error_of_one_line(server: str, proxy: str) -> None:
    cluster = {"server": server, "proxy-url": proxy}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert await refusal(json.dumps(spoilt))


@given(ANY)
async def test_any_yaml_in_the_file_gives_an_error_of_one_line(value: Any) -> None:
    assert await refusal(yaml.safe_dump(value, allow_unicode=True))


@pytest.mark.long
@given(st.text() | st.binary() | st.text(st.sampled_from("[]{}:,-&*!<>|'\"#? \n01ax_.~")))
@example("[" * 5000)
@example("&a [*a]")
@example("&a {clusters: [*a], users: *a, contexts: *a}")
@example("current-context: 2001-99-99")
@example("current-context: !!bool x")
@example("current-context: !!int ''")
@example("current-context: 0b_")
@example('current-context: "\\ud800"')
async def test_any_text_in_the_file_gives_an_error_of_one_line(text: str | bytes) -> None:
    assert await refusal(text)


async def test_an_unsupported_proxy_is_refused_before_it_is_called() -> None:
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster", "proxy-url"), "socks5://127.0.0.1:1")
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    message = await refusal(json.dumps(spoilt))
    assert "proxy-url 'socks5://127.0.0.1:1' is not a valid URL, such as http://proxy" in message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("server", "127.0.0.1:1", "server '127.0.0.1:1' is not a valid URL, such as https://"),
        ("server", "ftp://x", "server 'ftp://x' is not a valid URL"),
        ("server", "https://[::1", "server 'https://[::1' is not a valid URL"),
        ("server", "https://127.0.0.1:999999", "server 'https://127.0.0.1:999999' is not a valid"),
        ("server", "https://", "server 'https://' is not a valid URL"),
        ("server", 5, "in the cluster of its current context: Expected `str | null`, got `int`"),
        ("tls-server-name", 5, "`int` - at `$.tls-server-name`"),
        ("insecure-skip-tls-verify", "false", "`str` - at `$.insecure-skip-tls-verify`"),
        ("certificate-authority-data", "!!!", "certificate-authority-data is not valid base64"),
        ("certificate-authority-data", "eHh4", "certificate-authority must hold PEM certificates"),
        ("certificate-authority", "junk", "certificate-authority must hold PEM certificates"),
    ],
)
async def test_a_wrong_field_of_the_cluster_is_refused_at_once(
    field: str, value: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "junk").write_text("junk")
    value = str(tmp_path / "junk") if value == "junk" else value
    cluster = {"server": "https://127.0.0.1:1", field: value}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert message in await refusal(json.dumps(spoilt))


PAIR = "client-certificate and client-key a PEM certificate and its unencrypted key"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"client-certificate-data": "eHh4"}, PAIR),
        ({"client-key-data": "eHh4"}, PAIR),
        ({"client-certificate-data": "eHh4", "client-key-data": "eHh4"}, PAIR),
        ({"client-certificate-data": "?"}, "client-certificate-data is not valid base64"),
    ],
)
async def test_an_unusable_client_certificate_is_refused_at_once(
    user: dict[str, str], message: str
) -> None:
    cluster = {"server": "https://127.0.0.1:1"}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [{"name": "u", "user": user}])
    assert message in await refusal(json.dumps(spoilt))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/", "Is a directory"),
        ("/dev/null", "it is not a kubeconfig with clusters"),
        ("/no", "no such file; pass --kubeconfig FILE"),
    ],
)
async def test_a_path_that_is_no_file_is_refused_as_kubeconfig(path: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        await Session.open(Path(path))


@pytest.mark.parametrize("token", ["a\nb", "\ud800", "\x00"])
async def test_a_token_that_fits_no_header_is_refused_and_not_shown(token: str) -> None:
    spoilt = replaced(WHOLE, ("users",), [{"name": "u", "user": {"token": token}}])
    message = await refusal(json.dumps(spoilt))
    assert message.endswith("its token contains a non-printable character")


@pytest.mark.parametrize("user", [{"token": "secret"}, {"username": "a", "password": "secret"}])
async def test_a_token_goes_over_plain_http_to_this_machine_only(user: dict[str, str]) -> None:
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), {"server": "http://192.0.2.1:8080"})
    message = await refusal(json.dumps(replaced(spoilt, ("users", 0, "user"), user)))
    assert "server 'http://192.0.2.1:8080' must be https, or on loopback" in message
    assert "secret" not in message


@pytest.mark.parametrize("ends", [10**30, "soon", -(10**30), True, [1], None])
async def test_an_id_token_with_an_invalid_expiry_gives_an_error_of_one_line(ends: Any) -> None:
    message = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).decode().rstrip("=")
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{message}.c"}}}
    assert await refusal(json.dumps(replaced(WHOLE, ("users", 0, "user"), user)))


NODES = "/api/v1/nodes"
V1 = "client.authentication.k8s.io/v1"
BASIC = "Basic " + base64.b64encode("Jörg:pass:word".encode()).decode()
PASSWORD = {"username": "Jörg", "password": "pass:word"}


def plugin(folder: Path) -> dict[str, Any]:
    """A user's `exec` that returns the token "plugin"."""
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "plugin"}}
    return {
        "apiVersion": V1,
        "command": sys.executable,
        "args": ["-c", f"open({str(folder / 'ran')!r}, 'w'); print({json.dumps(answer)!r})"],
    }


def id_token(ends_at: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(ends_at)}).encode())
    return f"a.{claims.decode().rstrip('=')}.c"


async def sent_authorization(api: FakeApi, folder: Path, user: dict[str, Any]) -> str:
    """The Authorization header that a session sends."""
    async with await Session.open(api.kubeconfig(folder, user=user)) as session:
        await session.get(NODES)
    return api.asked[-1].headers.get("Authorization", "")


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        (PASSWORD, BASIC),
        ({"username": "eve"}, "Basic " + base64.b64encode(b"eve:").decode()),
        ({"token": "t", "username": "", "password": None}, "Bearer t"),
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "tokenFile": "token"}, "Bearer of the file"),
        ({"token": "", "tokenFile": "token"}, "Bearer of the file"),
        ({"token": "t", **PASSWORD}, "Bearer t"),
        ({"token": "t", "auth-provider": {"name": "gcp"}}, "Bearer t"),
        ({}, ""),
    ],
)
async def test_a_users_credentials_are_sent(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], authorization: str
) -> None:
    (tmp_path / "token").write_text("of the file\n")
    assert await sent_authorization(api, tmp_path, user) == authorization


@pytest.mark.parametrize("user", [{"token": "t"}, PASSWORD], ids=["a token", "a password"])
async def test_a_plugin_is_not_run_where_it_is_not_needed(
    api: FakeApi, tmp_path: Path, user: dict[str, Any]
) -> None:
    authorization = await sent_authorization(api, tmp_path, user | {"exec": plugin(tmp_path)})
    assert authorization in ("Bearer t", BASIC)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_a_plugin_is_run_unless_there_is_a_client_certificate(
    api: FakeApi, tmp_path: Path, has_certificate: bool
) -> None:
    user: dict[str, Any] = {"exec": plugin(tmp_path)}
    if has_certificate:
        pair = Authority().client("eve")
        user["client-certificate-data"] = base64.b64encode(pair.certificate).decode()
        user["client-key-data"] = base64.b64encode(pair.key).decode()
    assert await sent_authorization(api, tmp_path, user) == (
        "" if has_certificate else "Bearer plugin"
    )
    assert (tmp_path / "ran").exists() is not has_certificate


async def test_an_id_token_that_has_not_expired_is_sent(api: FakeApi, tmp_path: Path) -> None:
    token = id_token(time.time() + 600)
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    assert await sent_authorization(api, tmp_path, user) == f"Bearer {token}"
    assert await sent_authorization(api, tmp_path, user | {"token": "t"}) == "Bearer t"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"username": 5, "password": "secret"}, r"got `int` - at `\$.username`"),
        ({"username": "eve", "password": 5}, r"got `int` - at `\$.password`"),
        ({"tokenFile": "absent"}, "No such file or directory: .*absent"),
        ({"auth-provider": {"name": "gcp"}}, "gives no token.*use exec with a credential plugin"),
        ({"auth-provider": "gcp"}, r"got `str` - at `\$.auth-provider`"),
        (
            {"auth-provider": {"name": "oidc"}},
            "auth-provider of the user gives no token; renew it with kubectl, or use exec with a "
            "credential plugin",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b"}}},
            "auth-provider of the user gives no token",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": id_token(1)}}},
            "gives no token; renew it with kubectl",
        ),
        (
            {
                "auth-provider": {
                    "name": "oidc",
                    "config": {
                        "id-token": id_token(1),
                        "refresh-token": "secret",
                        "client-id": "i",
                        "client-secret": "secret",
                        "idp-issuer-url": "http://127.0.0.1:1",
                    },
                }
            },
            "gives no token .*127.0.0.1:1",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_unusable_credentials_give_an_error_of_one_line(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], message: str
) -> None:
    path = api.kubeconfig(tmp_path, user=user)
    with pytest.raises(SettingsError, match=message) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_malformed_entry_is_not_shown_in_the_error(api: FakeApi, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["users"] = [{"name": "fake", "token": "{secret}"}]
    path.write_text(json.dumps(config))
    with pytest.raises(SettingsError, match="Expected key user in") as caught:
        await Session.open(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("someone", "Expected object with name someone in .*/users list"),
        (None, r"in the context of its .*got `null` - at `\$.user`"),
    ],
)
async def test_a_context_without_a_user_gives_an_error(
    api: FakeApi, tmp_path: Path, named: str | None, message: str
) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["user"] = named
    path.write_text(json.dumps(config))
    with pytest.raises(SettingsError, match=message):
        await Session.open(path)


NODES_PATH = "/api/v1/nodes"
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
    """The impersonation headers of each request that came in."""
    return [
        {name: text for name, text in asked.headers.items() if name.startswith(PREFIX)}
        for asked in api.asked
    ]


async def test_every_request_impersonates_whom_the_kubeconfig_names(
    api: FakeApi, tmp_path: Path
) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, user=EVE)) as session:
        await session.get(NODES_PATH)
        async with aclosing(session.stream(NODES_PATH, {"watch": True})) as chunks:
            await anext(chunks)
        await session.create(LEASES, {"metadata": {"name": "a"}})
        await session.patch(f"{LEASES}/a", {"spec": {"x": 1}})
        await session.replace(f"{LEASES}/a", {"metadata": {"name": "a", "namespace": "ns"}})
    verbs = [asked.verb for asked in api.asked]
    assert verbs == ["list", "watch", "create", "patch", "update"]
    sent = {
        "Impersonate-User": "eve",
        "Impersonate-Uid": "u-1",
        "Impersonate-Group": "gpu-users,system:authenticated",
        "Impersonate-Extra-scopes": "view,list",
        "Impersonate-Extra-example.com%2FGr%C3%B6%C3%9Fe": "ä",
    }
    assert impersonated(api) == [sent] * len(verbs)
    assert {asked.headers["Authorization"] for asked in api.asked} == {"Bearer t"}


async def test_impersonation_is_read_again_with_the_credentials(
    api: FakeApi, tmp_path: Path
) -> None:
    api.token = "new"
    user = {"token": "old", "as": "eve"}
    async with await Session.open(api.kubeconfig(tmp_path, user=user)) as session:
        api.kubeconfig(tmp_path, user={"token": "new", "as": "adam"})
        await session.get(NODES_PATH)
    assert impersonated(api) == [{"Impersonate-User": name} for name in ("eve", "adam")]


@pytest.mark.parametrize(
    "user", [{}, {"as": ""}, {"as": None, "as-groups": [], "as-user-extra": {}}, {"as-uid": ""}]
)
async def test_without_impersonation_no_header_is_sent(
    api: FakeApi, tmp_path: Path, user: dict[str, Any]
) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, user=user)) as session:
        await session.get(NODES_PATH)
    assert impersonated(api) == [{}]


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"as-uid": "u-1"}, "the user has as-uid, as-groups or as-user-extra without as"),
        ({"as-groups": ["a"]}, "the user has as-uid, as-groups or as-user-extra without as"),
        ({"as": "", "as-user-extra": {"a": ["b"]}}, "as-user-extra without as"),
        ({"as": 5}, r"in the user .*: Expected `str \| null`, got `int` - at `\$.as`"),
        ({"as": "eve", "as-groups": "a"}, r"got `str` - at `\$.as-groups`"),
        ({"as": "eve", "as-user-extra": {"a": "b"}}, r"got `str` - at `\$.as-user-extra"),
        ({"as": "e\nve"}, "Impersonate-User of its user contains a non-printable character"),
        ({"as": "eve", "as-uid": "\x00"}, "Impersonate-Uid of its user contains a non-printable"),
        ({"as": "eve", "as-groups": ["a", "\ud800"]}, "Impersonate-Group of its user contains"),
        ({"as": "eve", "as-user-extra": {"a": ["\r"]}}, "Impersonate-Extra-a of its user contains"),
    ],
)
async def test_invalid_impersonation_gives_an_error_of_one_line(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], message: str
) -> None:
    path = api.kubeconfig(tmp_path, user=user)
    with pytest.raises(SettingsError, match=message) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1))
def test_any_key_of_an_extra_becomes_a_header_that_can_be_decoded(key: str) -> None:
    user = kubeconfig._User(acts_as="eve", as_user_extra={key: ["a"]})
    ((_, _), (name, _)) = kubeconfig._impersonation_headers(user)
    escaped = name.removeprefix("Impersonate-Extra-")
    assert all(c.isascii() and (c.isalnum() or c in TOKEN_CHARACTERS + "%") for c in escaped)
    assert unquote(escaped) == key
