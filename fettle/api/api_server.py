"""The API server itself: its URL paths, how it learns which webhooks to call, and what it answers
to reviews. No other module makes a path: a name may come from an object that a tenant wrote, and
`../../victim/jobs/backup` must not lead out of the tenant's namespace.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from fettle.api.annotations import ApiObject
from fettle.model import BadInput

_NEVER_NAMES = (".", "..")
_NEVER_IN_NAMES = "/%"


class ReviewedUser(msgspec.Struct, frozen=True):
    """As the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, Any] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()


class TokenReview(msgspec.Struct, frozen=True):
    """An answered TokenReview."""

    status: _TokenStatus


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool


class AccessReview(msgspec.Struct, frozen=True):
    """An answered SubjectAccessReview."""

    status: _AccessStatus


class _RequestStatus(msgspec.Struct, frozen=True):
    token: str


class TokenRequest(msgspec.Struct, frozen=True):
    """An answered TokenRequest."""

    status: _RequestStatus


def group_path(group: str, version: str = "") -> str:
    """Of a group's discovery document, or of one of its versions; `group` is "" for the core.

    >>> group_path("resource.k8s.io", "v1"), group_path("", "v1")
    ('/apis/resource.k8s.io/v1', '/api/v1')
    """
    return "/".join(("/apis" if group else "/api", *map(_segment, filter(None, (group, version)))))


def api_path(
    api_version: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = ""
) -> str:
    """Of an object or of its subresource; without a name, of a list: of one namespace, or of all.

    Raises BadInput for what no object's name or namespace can be (as client-go does, by
    `path.IsValidPathSegmentName`): ".", "..", and what contains "/" or "%".

    >>> api_path("v1", "pods", namespace="ml", name="train-0", subresource="eviction")
    '/api/v1/namespaces/ml/pods/train-0/eviction'
    >>> api_path("resource.k8s.io/v1", "resourceslices")
    '/apis/resource.k8s.io/v1/resourceslices'
    """
    group, _, version = api_version.rpartition("/")
    parts = [group_path(group, version)]
    if namespace:
        parts += "namespaces", _segment(namespace)
    parts.append(_segment(plural))
    if name:
        parts.append(_segment(name))
    if subresource:
        parts.append(_segment(subresource))
    return "/".join(parts)


def _segment(text: str) -> str:
    if text in _NEVER_NAMES or any(char in text for char in _NEVER_IN_NAMES):
        raise BadInput(f"{text[:80]!r} is no name of an object: it would lead elsewhere in a URL")
    return quote(text, safe="")


class WebhookConfiguration(ApiObject, frozen=True, kw_only=True):
    """A mutating or validating webhook configuration. `webhooks` are kept as raw objects, since a
    patch replaces each of them whole."""

    webhooks: tuple[dict[str, Any], ...] | None = None
