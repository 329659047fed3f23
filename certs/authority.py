"""The certificate authority that is kept in a Secret, and the steps by which it is replaced.

The Secret holds `ca.crt` (the signing certificate, after it perhaps the one before), `ca.key`, and
during a replacement `next.crt`, `next.key`. Where the bundle can be changed, each step waits for
the one before to have taken effect everywhere: the next authority is written → the bundle holds
both → 60 s later it signs → when all leaves of the old one have expired, that is dropped. Where
people hand the certificate to its readers, the next one is written long before it signs. Pure: the
clock is an argument.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from certs import issuing
from certs.issuing import Pair
from fettle.model import AuthorityError, CertificateError

CERTIFICATE, KEY = "ca.crt", "ca.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
PROMOTED_AT = "promoted"
"""Unix seconds since when the signing authority signs, as text; only while an old one is kept."""

PUBLISH_S = 60.0
"""How long API servers may take to see a new bundle."""
DROP_SLACK_S = 3600.0
"""How long a replica may go on signing with the old authority after another one took over."""
ANNOUNCE_AT_SHARE = 0.9
"""Share of the lifetime of an authority that callers read only at startup: a year before its ten
years end, the next one is available to be given to them.
"""

Secret = Mapping[str, bytes]


class Authority(NamedTuple):
    """What a Secret says: who signs, what callers must trust, who comes next."""

    signing: Pair
    bundle: bytes
    next: Pair | None
    old: bytes | None
    promoted_at: float | None


class RotationStep(NamedTuple):
    """What the Secret should hold now (the same content: nothing to write), and why."""

    secret: Secret
    why: str


@contextmanager
def kept_in(where: str) -> Iterator[None]:
    """Errors about an authority name its Secret, and say what to do about it."""
    try:
        yield
    except CertificateError as error:
        raise AuthorityError(
            f"{where}: {error}; delete the Secret and Fettle will create a new one"
        ) from error


def new(common_name: str, *, now_s: float, lifetime_s: float) -> dict[str, bytes]:
    """The content of a Secret with a new authority."""
    made = issuing.root(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return {CERTIFICATE: made.certificate, KEY: made.key}


def renewed(
    secret: Secret, common_name: str, *, now_s: float, lifetime_s: float
) -> dict[str, bytes]:
    """Replaces an authority that can no longer be trusted: by its next one, else by a new one."""
    following = read(secret).next if secret else None
    if following is None or now_s >= issuing.expires_at(following.certificate):
        return new(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return {CERTIFICATE: following.certificate, KEY: following.key}


def present(
    secret: Secret | None, common_name: str, *, now_s: float, lifetime_s: float
) -> RotationStep:
    """A Secret with an authority that can sign: the one that is there, or another one.

    Raises CertificateError if the Secret cannot be read. One without content is one that was
    installed empty, to be filled.
    """
    if not secret:
        made = new(common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "there was none")
    if now_s >= issuing.expires_at(read(secret).signing.certificate):
        made = renewed(secret, common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "it has expired; a new one signs immediately")
    return RotationStep(secret, "nothing to do")


def announced(secret: Secret, common_name: str, *, now_s: float, lifetime_s: float) -> RotationStep:
    """Near the end of its authority, a Secret with the next one too."""
    authority = read(secret)
    due_at = issuing.renew_at(authority.signing.certificate, ANNOUNCE_AT_SHARE)
    if authority.next is not None or now_s < due_at:
        return RotationStep(secret, "nothing to do")
    following = _following(common_name, now_s=now_s, lifetime_s=lifetime_s)
    return RotationStep(
        {**secret, **following}, "it expires soon; callers must also be given the next one"
    )


def read(secret: Secret) -> Authority:
    """Raises CertificateError that says what is wrong with the content."""
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


def step(
    secret: Secret,
    *,
    now_s: float,
    published_at: float | None,
    common_name: str,
    lifetime_s: float,
    leaf_lifetime_s: float,
) -> RotationStep:
    """The next step; `published_at`: since when the bundle in force holds all of ours, if it does.

    Raises CertificateError if the Secret cannot be read.
    """
    authority = read(secret)
    if now_s >= issuing.expires_at(authority.signing.certificate):
        made = renewed(secret, common_name, now_s=now_s, lifetime_s=lifetime_s)
        return RotationStep(made, "the authority has expired; a new one signs immediately")
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
    """When everything that the old authority signed has expired."""
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
