"""What the API server answers to reviews: whose a token is, and what a user may do."""

from typing import Any

import msgspec


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
