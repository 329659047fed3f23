"""Whatever a kubeconfig holds: a session, or one sentence that names the file."""

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.client.session import Session
from fettle.model import ClusterError, SettingsError

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
    """To every part, the whole first."""
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
    """What is said of such a file, or of its server; "" only where a server answers."""
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
            said = one_line(str(error))
        else:
            return ""
    assert str(path) in said
    return said


def one_line(said: str) -> str:
    said.encode()
    assert len(said.splitlines()) == 1
    assert len(said) < 1000
    return said


FIELDS = [(whole, path) for whole in WHOLES for path in sorted(paths(whole), key=str)]


@given(st.sampled_from(FIELDS), ANY, st.booleans())
async def test_whatever_stands_in_a_field_it_is_one_sentence(
    field: tuple[Any, tuple[str | int, ...]], value: Any, plain: bool
) -> None:
    whole, path = field
    spoilt = replaced(whole, path, value)
    if plain and path and path[0] != "users":  # one whose credentials are read
        spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert await refusal(yaml.safe_dump(spoilt, allow_unicode=True))


@given(SERVERS, st.sampled_from(["http://127.0.0.1:1", "127.0.0.1", "http://[::1", "x://y", ""]))
async def test_whatever_the_server_and_its_proxy_are_called_it_is_one_sentence(
    server: str, proxy: str
) -> None:
    cluster = {"server": server, "proxy-url": proxy}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert await refusal(json.dumps(spoilt))


@given(ANY)
async def test_whatever_the_file_holds_it_is_one_sentence(value: Any) -> None:
    assert await refusal(yaml.safe_dump(value, allow_unicode=True))


@given(st.text() | st.binary() | st.text(st.sampled_from("[]{}:,-&*!<>|'\"#? \n01ax_.~")))
@example("[" * 5000)
@example("&a [*a]")
@example("&a {clusters: [*a], users: *a, contexts: *a}")
@example("current-context: 2001-99-99")
@example("current-context: !!bool x")
@example("current-context: !!int ''")
@example("current-context: 0b_")
@example('current-context: "\\ud800"')
async def test_wild_text_is_one_sentence(text: str | bytes) -> None:
    assert await refusal(text)


async def test_a_proxy_that_is_not_known_is_said_before_it_is_asked() -> None:
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster", "proxy-url"), "socks5://127.0.0.1:1")
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    said = await refusal(json.dumps(spoilt))
    assert "proxy-url 'socks5://127.0.0.1:1' must begin with http:// or https://" in said


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("server", "127.0.0.1:1", "server '127.0.0.1:1' must begin with http:// or https://"),
        ("server", "ftp://x", "server 'ftp://x' must begin with http:// or https://"),
        ("server", "https://[::1", "server 'https://[::1' is not a valid URL: "),
        (
            "server",
            "https://127.0.0.1:999999",
            "server 'https://127.0.0.1:999999' is not a valid URL: ",
        ),
        ("server", "https://", "server 'https://' is not a valid URL"),
        ("server", 5, "server 5 is not a valid URL"),
        ("tls-server-name", 5, "tls-server-name must be a string, not 5"),
        (
            "insecure-skip-tls-verify",
            "false",
            "insecure-skip-tls-verify must be true or false, not 'false'",
        ),
        ("certificate-authority-data", "!!!", "certificate-authority-data is not valid base64"),
        (
            "certificate-authority-data",
            "eHh4",
            "certificate-authority contains no usable PEM certificates",
        ),
        (
            "certificate-authority",
            "junk",
            "certificate-authority contains no usable PEM certificates",
        ),
    ],
)
async def test_a_field_of_the_cluster_that_cannot_be_right_is_said_at_once(
    field: str, value: Any, said: str, tmp_path: Path
) -> None:
    (tmp_path / "junk").write_text("junk")
    value = str(tmp_path / "junk") if value == "junk" else value
    cluster = {"server": "https://127.0.0.1:1", field: value}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [PLAIN_USER])
    assert said in await refusal(json.dumps(spoilt))


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"client-certificate-data": "eHh4"}, "a client-certificate without a client-key"),
        ({"client-key-data": "eHh4"}, "a client-key without a client-certificate"),
        (
            {"client-certificate-data": "eHh4", "client-key-data": "eHh4"},
            "client-certificate and client-key are not a PEM certificate and its unencrypted key",
        ),
        ({"client-certificate-data": "?"}, "client-certificate-data is not valid base64"),
    ],
)
async def test_a_certificate_of_the_user_that_cannot_be_used_is_said_at_once(
    user: dict[str, str], said: str
) -> None:
    cluster = {"server": "https://127.0.0.1:1"}
    spoilt = replaced(WHOLE, ("clusters", 0, "cluster"), cluster)
    spoilt = replaced(spoilt, ("users",), [{"name": "u", "user": user}])
    assert said in await refusal(json.dumps(spoilt))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "/ is a directory"),
        ("/dev/null", "/dev/null is not a regular file"),
        ("/no", "does not exist"),
    ],
)
async def test_what_is_no_file_is_no_kubeconfig(path: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        await Session.open(Path(path))


@pytest.mark.parametrize("token", ["a\nb", "\ud800", "\x00"])
async def test_a_token_that_fits_no_header_is_said_and_not_shown(token: str) -> None:
    spoilt = replaced(WHOLE, ("users",), [{"name": "u", "user": {"token": token}}])
    said = await refusal(json.dumps(spoilt))
    assert said.endswith("its token contains a non-printable character")


@pytest.mark.parametrize("ends", [10**30, "soon", -(10**30), True, [1], None])
async def test_an_id_token_that_ends_at_no_time_is_one_sentence(ends: Any) -> None:
    said = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).decode().rstrip("=")
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{said}.c"}}}
    assert await refusal(json.dumps(replaced(WHOLE, ("users", 0, "user"), user)))
