"""What the API server's responses mean. A body becomes a struct. A refusal, which is an HTTP status
and a `Status` object, becomes one of our errors, with one sentence for people. Pure.
"""

import re
from typing import TypeVar

import msgspec

from fettle.model import errors

_T = TypeVar("_T")

_LONGEST = 400

DENIED = "denied access by RBAC"
"""In each sentence about a right that is missing."""
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_FOLLOWING = 'the verbs "list" and "watch"'
"""What it takes to follow a resource; the server names only the verb that it refused. Whoever is
refused a list may need no more: to follow begins with a watch."""
_FORBIDDEN = re.compile(
    r'[Uu]ser "(?P<user>[^"]*)" cannot (?P<verb>\S+) '
    r'(?:resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"|path "(?P<path>[^"]*)")'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


def decoded(raw: bytes, type: type[_T], what: str) -> _T:
    """The body as a struct; raises ClusterError. `what` was requested, such as "Secret ns/ca"."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # A proxy in between may answer with a page of its own, and status 200.
        raise errors.ClusterError(
            f"the API server's response is not a valid {what} ({error}); "
            "check whether a proxy is answering instead"
        ) from error


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    name: str = ""
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """The fields of a `v1` Status that say why something was refused."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def read_status(body: bytes | msgspec.Raw) -> Status:
    """The Status in a response, or one whose message is the response's text."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status(message=bytes(body)[:_LONGEST].decode("utf-8", "replace"))


def refusal(server: str, request: str, code: int, status: Status) -> errors.ClusterError:
    """The error for a response that is no success; `request` is such as "GET /api/v1/nodes"."""
    message = _one_line(status.message) or f"status {code}"
    if budget := _spent_budget(code, status):
        return errors.BudgetSpent(_one_line(budget))
    if code == 403:
        if grant := _grant(server, status.message):
            return errors.Forbidden(grant)
        return errors.Denied(f"{server} forbids: {message}")
    if code == 401:
        return errors.Unauthorized(
            f"{server} does not accept our credentials ({message}); "
            "renew the kubeconfig's user or the service account's token"
        )
    if code == 404 and not (status.details and status.details.name):
        return errors.NotServed(f"{server} does not serve {request.split(' ', 1)[-1]}")
    # A resourceVersion that the server has not reached, as after an etcd restore, is as useless as
    # one that it has forgotten: both are cured by a new list.
    if code == 410 or _too_large_version(status):
        return errors.Expired(f"{server} no longer knows that resourceVersion: {message}")
    kind = _KINDS.get(code)
    if kind is None:
        kind = errors.Unreachable if code == 429 or code >= 500 else errors.ClusterError
    return kind(f"{server} returned {code} for {request}: {message}")


_KINDS: dict[int, type[errors.ClusterError]] = {
    400: errors.Invalid,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    422: errors.Invalid,
}


def _grant(server: str, message: str) -> str:
    """Which right is missing, by the API server's message; "" if that does not say."""
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
    denied = f"{server} {DENIED}:"
    if verb.startswith("impersonate"):  # also such as "impersonate-on:user-info:list"
        return (
            f"{denied} {user} may not impersonate whom the kubeconfig's user names with `as`; "
            f'grant the verb "impersonate" on them to {user}, or leave out `as`'
        )
    if found["path"]:
        return f'{denied} grant the verb "{verb}" on the path "{found["path"]}" to {user}'
    group = f'the API group "{found["group"]}"' if found["group"] else "the core API group"
    where = f'the namespace "{found["namespace"]}"' if found["namespace"] else "all namespaces"
    verbs = _FOLLOWING if verb == "watch" else f'the verb "{verb}"'
    what = f'the resource "{found["resource"]}" of {group} in {where}'
    return f"{denied} grant {verbs} on {what} to {user}; deploy/rbac/ has the roles"


def _too_large_version(status: Status) -> bool:
    causes = (status.details.causes if status.details else None) or ()
    return any(cause.reason == "ResourceVersionTooLarge" for cause in causes)


def _spent_budget(code: int, status: Status) -> str:
    """Why a PodDisruptionBudget allows no eviction now, in the server's words; "" if none is in the
    way. The server says it with 429 or 403; with 500, that it cannot tell two budgets apart."""
    causes = (status.details.causes if status.details else None) or ()
    told = next((c.message or status.message for c in causes if c.reason == "DisruptionBudget"), "")
    return told or (status.message if code == 500 and _SEVERAL_BUDGETS in status.message else "")


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
