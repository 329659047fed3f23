"""A certificate authority in a Secret, and the steps of its rotation.

The Secret holds `ca.crt` (the signing certificate, perhaps followed by the one before), `ca.key`,
and during a rotation `next.crt` and `next.key`. The webhook's authority takes these steps, each
once the one before has taken effect everywhere: the next authority is written → the bundle holds
both → 60 s later the next one signs → once all leaves of the old one have expired, it is dropped.
The extender's next authority is written long before it signs, for people to hand it out. Pure: the
clock is an argument.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from certs import issuing
from certs.issuing import Pair
from fettle.model import AuthorityError, CertificateError

MANIFEST = "deploy/rbac/authorities.yaml"
"""Has the Secrets without data."""
CERTIFICATE, KEY = "ca.crt", "ca.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
PROMOTED_AT = "promoted"
"""When the signing authority began to sign, Unix seconds as text; only while an old one is kept."""

PUBLISH_S = 60.0
"""How long API servers may take to load a new bundle."""
DROP_SLACK_S = 3600.0
"""How long a replica may keep signing with the old authority after another one switched."""
ANNOUNCE_AT_SHARE = 0.9
"""Share of its lifetime after which an authority that callers read only at startup gets a next one.

It lives ten years, so people have a year to give callers the next one.
"""

Secret = Mapping[str, bytes]


class Authority(NamedTuple):
    """The content of a Secret: who signs, what callers must trust, who signs next."""

    signing: Pair
    bundle: bytes
    next: Pair | None
    old: bytes | None
    promoted_at: float | None


class RotationStep(NamedTuple):
    """What the Secret should hold now, and why; the same object means that nothing is to write."""

    secret: Secret
    why: str


@contextmanager
def errors_naming(where: str) -> Iterator[None]:
    """Makes errors about an authority name its Secret, and say what to do."""
    try:
        yield
    except CertificateError as error:
        raise AuthorityError(
            f"{where}: {error}; delete the Secret, apply {MANIFEST}, and Fettle fills it anew"
        ) from error


def new_secret(common_name: str, *, now_s: float, lifetime_s: float) -> dict[str, bytes]:
    """The content of a Secret with a new authority."""
    made = issuing.root(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return {CERTIFICATE: made.certificate, KEY: made.key}


def renewed(
    secret: Secret, common_name: str, *, now_s: float, lifetime_s: float
) -> dict[str, bytes]:
    """The content with the next authority if there is one that is valid, else with a new one."""
    following = read(secret).next if secret else None
    if following is None or not issuing.is_valid(following.certificate, now_s):
        return new_secret(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return {CERTIFICATE: following.certificate, KEY: following.key}


def ensured(secret: Secret, common_name: str, *, now_s: float, lifetime_s: float) -> RotationStep:
    """A Secret whose authority can sign: the present one, or another if it is absent or not valid.

    A Secret is installed empty, to be filled. Raises CertificateError if it cannot be read.
    """
    if not secret:
        made = new_secret(common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "it was empty")
    if not issuing.is_valid(read(secret).signing.certificate, now_s):
        made = renewed(secret, common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "it is not valid now; a new one signs immediately")
    return RotationStep(secret, "nothing to do")


def with_next(secret: Secret, common_name: str, *, now_s: float, lifetime_s: float) -> RotationStep:
    """A Secret that also holds the next authority, if the present one is near its end."""
    authority = read(secret)
    if authority.next is not None and not issuing.is_valid(authority.next.certificate, now_s):
        return _without_next(secret)
    due_at = issuing.renew_at(authority.signing.certificate, ANNOUNCE_AT_SHARE)
    if authority.next is not None or now_s < due_at:
        return RotationStep(secret, "nothing to do")
    following = _following(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return RotationStep(
        {**secret, **following}, "it expires soon; callers must also be given the next one"
    )


def read(secret: Secret) -> Authority:
    """The authority in a Secret; raises CertificateError that says what is wrong with it."""
    roots = issuing.certificates(_entry(secret, CERTIFICATE), CERTIFICATE)
    own, *older = [issuing.pem(root) for root in roots]
    signing = Pair(own, _entry(secret, KEY))
    issuing.check_pair(signing, "its authority")
    following = None
    if NEXT_CERTIFICATE in secret or NEXT_KEY in secret:
        following = Pair(_entry(secret, NEXT_CERTIFICATE), _entry(secret, NEXT_KEY))
        issuing.check_pair(following, "its next authority")
    trusted = [own, *older, *([following.certificate] if following else [])]
    promoted_at = _seconds(secret.get(PROMOTED_AT))
    old = b"".join(older) or None
    return Authority(signing, issuing.bundled(*trusted), following, old, promoted_at)


def next_step(
    secret: Secret,
    *,
    now_s: float,
    published_at: float | None,
    common_name: str,
    lifetime_s: float,
    leaf_lifetime_s: float,
) -> RotationStep:
    """The next step of the rotation.

    `published_at`: since when caBundle has held all that callers must trust; None: it does not.
    Raises CertificateError if the Secret cannot be read.
    """
    authority = read(secret)
    if not issuing.is_valid(authority.signing.certificate, now_s):
        made = renewed(secret, common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "the authority is not valid now; a new one signs immediately")
    if authority.next is not None and not issuing.is_valid(authority.next.certificate, now_s):
        return _without_next(secret)
    if authority.next is not None:
        if published_at is None or now_s - published_at < PUBLISH_S:
            return RotationStep(secret, "waiting for API servers to trust the next authority")
        return RotationStep(_promoted(authority, authority.next, now_s), "the next authority signs")
    if authority.old is not None:
        if now_s < _droppable_at(authority, leaf_lifetime_s):
            return RotationStep(secret, "waiting for the old authority's leaves to expire")
        kept = {CERTIFICATE: authority.signing.certificate, KEY: authority.signing.key}
        return RotationStep(kept, "the old authority is dropped")
    if now_s >= issuing.renew_at(authority.signing.certificate):
        following = _following(common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(
            {**secret, **following}, "two thirds of the authority's lifetime have passed"
        )
    return RotationStep(secret, "nothing to do")


def _without_next(secret: Secret) -> RotationStep:
    kept = {name: it for name, it in secret.items() if name not in (NEXT_CERTIFICATE, NEXT_KEY)}
    return RotationStep(kept, "the next authority is not valid now; another one is made when due")


def _following(common_name: str, *, now_s: float, lifetime_s: float) -> dict[str, bytes]:
    made = issuing.root(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return {NEXT_CERTIFICATE: made.certificate, NEXT_KEY: made.key}


def _promoted(authority: Authority, following: Pair, now_s: float) -> Secret:
    return {
        CERTIFICATE: issuing.bundled(following.certificate, authority.signing.certificate),
        KEY: following.key,
        PROMOTED_AT: str(int(now_s)).encode(),
    }


def _droppable_at(authority: Authority, leaf_lifetime_s: float) -> float:
    """When every leaf of the old authority has expired."""
    assert authority.old is not None
    expired_at = issuing.expires_at(authority.old)
    if authority.promoted_at is None:
        return expired_at
    return min(expired_at, authority.promoted_at + leaf_lifetime_s + DROP_SLACK_S)


def _entry(secret: Secret, name: str) -> bytes:
    if not (content := secret.get(name)):
        raise CertificateError(f"no {name}")
    return content


def _seconds(content: bytes | None) -> float | None:
    return float(content) if content is not None and content.isdigit() else None
