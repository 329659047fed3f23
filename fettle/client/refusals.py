"""What the API server's refusals mean: an HTTP status and a `Status` object become one of our
errors, with one sentence for people. Pure; the sessions and reflectors raise what it makes.
"""

import re

import msgspec

from fettle.model import errors

_LONGEST = 400

_FOLLOWING = 'the verbs "list" and "watch"'
"""What it takes to follow a resource; the server names only the one that it refused."""
_FORBIDDEN = re.compile(
    r'[Uu]ser "(?P<user>[^"]*)" cannot (?P<verb>\S+) '
    r'(?:resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"|path "(?P<path>[^"]*)")'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True):
    name: str = ""
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """A `v1` Status, as far as it tells why something was refused."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def read_status(body: bytes | msgspec.Raw) -> Status:
    """The Status in an answer, or one whose message is the answer's text."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status(message=bytes(body)[:_LONGEST].decode("utf-8", "replace"))


def refusal(server: str, asked: str, code: int, status: Status) -> errors.ClusterError:
    """The error for an answer that is no success; `asked` is what was asked ("GET /api/v1/nodes").

    A server that cannot reach a resourceVersion of ours, as after an etcd restore, has us list
    again, just as one that has forgotten it.
    """
    said = _one_line(status.message) or f"status {code}"
    if code == 403:
        return errors.Forbidden(_grant(server, status.message) or f"{server} forbids: {said}")
    if code == 401:
        return errors.Unauthorized(
            f"{server} does not accept our credentials ({said}); "
            "renew the kubeconfig's user or the service account's token"
        )
    if code == 404 and not (status.details and status.details.name):
        return errors.NotServed(f"{server} does not serve {asked.split(' ', 1)[-1]}")
    if code == 410 or _too_large_version(status):
        return errors.Expired(f"{server} no longer knows that resourceVersion: {said}")
    kind = _KINDS.get(code)
    if kind is None:
        kind = errors.Unreachable if code == 429 or code >= 500 else errors.ClusterError
    return kind(f"{server} returned {code} for {asked}: {said}")


_KINDS: dict[int, type[errors.ClusterError]] = {
    400: errors.Invalid,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    422: errors.Invalid,
}


def _grant(server: str, message: str) -> str:
    """What is missing, by what the API server said; "" if it is not a right."""
    found = _FORBIDDEN.search(message)
    if not found:
        return ""
    user, verb = found["user"], found["verb"]
    if user == "system:anonymous":
        return (
            f"{server} takes us for {user}, for want of credentials that it accepts; give the "
            "kubeconfig's user a token, exec or a client certificate (an API server takes no "
            "username and password)"
        )
    denied = f"{server} denied access by RBAC:"
    if verb.startswith("impersonate"):  # or a verb that stands for it and what was asked
        return (
            f"{denied} {user} may not impersonate whom the kubeconfig's user names with `as`; "
            f'grant the verb "impersonate" on them to {user}, or leave out `as`'
        )
    if found["path"]:
        return f'{denied} grant the verb "{verb}" on the path "{found["path"]}" to {user}'
    group = f'the API group "{found["group"]}"' if found["group"] else "the core API group"
    where = f'the namespace "{found["namespace"]}"' if found["namespace"] else "all namespaces"
    verbs = _FOLLOWING if verb in ("list", "watch") else f'the verb "{verb}"'
    what = f'the resource "{found["resource"]}" of {group} in {where}'
    return f"{denied} grant {verbs} on {what} to {user}; deploy/rbac/ has the roles"


def _too_large_version(status: Status) -> bool:
    causes = (status.details.causes if status.details else None) or ()
    return any(cause.reason == "ResourceVersionTooLarge" for cause in causes)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
