"""How drivers and monitors write NVIDIA XIDs: finds all of them in a text, each with the address of
its GPU where one is given. Knows nothing of what they mean, nor of SXIDs, which are an NVSwitch's.

The forms known here look around themselves, as RE2 cannot. So they are the standard library's, and
linear by their form: every repetition is bounded, or gives nothing back once it has matched.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from fettle.health.signals import gpu_names, patterns

LARGEST = 999
"""What is larger is no XID: they have three digits at most."""
_LONGEST_CODE = 9
"""Digits: of an index, too, which is written in the same way."""
ANY_FORM = "any"
"""As the `xid` of a rule: every form that is known here."""

KERNEL_LOG = "kernel log"
"""As a form: the driver's own line, `NVRM: Xid (PCI:0000:c1:00): 79, pid=…`. No other text looks
like it, so it is read wherever it stands."""
MOST_MENTIONS = 64
"""Of one text, the latest. More no node's GPUs have at once."""

_KERNEL_LOG = re.compile(
    r"\b[Xx]id\s?\((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^()\n]{0,40}\)\s?:"
    r"\s{0,3}(?P<xid>[1-9][0-9]{0,2})(?![0-9.])"
)

_WORD = r"xid(?:(?<![a-z]xid)|(?<=nvidiaxid)|(?<=gpuxid)|(?-i:(?<=[a-rt-z]X[Ii][Dd])))"
"""`NvidiaXID`, and not `SXid` or `taxid`."""
_SIGNS = r"""[\s:=_#\-"'(\[<\\]{0,6}"""
_NUMBER = r"0*+(?P<{}>[1-9][0-9]{{0,2}})(?![0-9]|\.[0-9]|:[0-9a-f]{{2}}(?![a-z])|:[0-9a-f]$)"
_IS_COUNT = r"[ \t]{0,2}(?:times|occurrences|gpus\b|devices\b|%|of\s[0-9])"
_LISTED = r"[1-9][0-9]{0,2}"
_JOINT = r"(?>\W{0,2}[,/&]\W{0,2}(?:and\s)?|\sand\s)"
"""Atomic: `%,,` is one joint, not two ways to read one, of which each would double the work."""
_CODE = re.compile(_LISTED)
_UNITS = (
    "counts?|nodes|events|hits|pods|processes|retries|more|others?"
    "|m?s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|days?"
)
_LAST = (
    r"(?![0-9a-z]|\.[0-9]|:[0-9a-f]{2}(?![a-z])|:[0-9a-f]$|[/-][0-9]"
    rf"|{_IS_COUNT}|\s{{0,2}}(?:{_UNITS})\b|\sin\s)"
)
"""After the last of several: so it is no date, no address, and counts nothing."""
_ANY_FORM = re.compile(
    rf"{_WORD}(?:"
    # the kernel's log: `NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 79, pid=…`
    r"\s?:?\s?\((?P<where>[^()\n]{0,60})\)\s{0,3}[:,]?\s{0,3}"
    rf"{_NUMBER.format('logged')}"
    # `Xid errors 13, 79 and 48`; `Xid errors 8` is a count
    rf"|s?[ _-]?errors{_SIGNS}(?P<several>{_LISTED}(?:{_JOINT}{_LISTED})+){_LAST}"
    # `XIDs: 48, 63`, `xid codes 48 and 63`
    # `XID error-codes found: 48, 56`, as AKS writes
    rf"|(?:s|s?[ _-]?codes|[ _-]error[ _-]codes\sfound){_SIGNS}"
    rf"(?P<list>{_LISTED}(?:(?:{_JOINT}|\s){_LISTED})*){_LAST}"
    # `XID-79`, `NvidiaXID79Error`, `xid=79`, `"xid": 79`, `Xid error code: 79`, `XID 31 and 79`
    rf"|(?:[ _-]?(?:err(?:or)?|code|number|event|id|critical)){{0,2}}{_SIGNS}"
    rf"{_NUMBER.format('named')}(?!{_IS_COUNT})(?P<joined>(?:{_JOINT}{_LISTED})+{_LAST})?)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?(?![0-9a-f:])", re.IGNORECASE
)


class XidMention(NamedTuple):
    """An XID in a text: its number, its GPU's name (`pci:…`) or "", and what was said from there
    up to the next XID."""

    code: str
    gpu: str
    said: str


def is_code(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_CODE


def mentions(form: str, reason: str, message: str) -> tuple[XidMention, ...]:
    """All XIDs of a condition, in the order in which they were told; of the same XID of the same
    GPU, the last.

    `form`: ANY_FORM, or a regular expression whose group `xid` (else its last one) is the number,
    and whose group `pci`, if it has one, the address. The message tells more than the reason, which
    is that of the newest finding.

    >>> found = mentions(ANY_FORM, "XIDError", "Xid (PCI:0000:3b:00): 79, GPU has fallen off")
    >>> [(one.code, one.gpu) for one in found]
    [('79', 'pci:0000:3b:00.0')]
    """
    told = [*_found(form, message)][-MOST_MENTIONS:]
    for newest in [*_found(form, reason)][-MOST_MENTIONS:]:
        same = [one for one in told if one.code == newest.code]
        if not any(one.gpu for one in same):
            told = [one for one in told if one not in same] + (
                same or [newest._replace(said=message)]
            )
    latest: dict[object, XidMention] = {}
    for one in told[-MOST_MENTIONS:]:
        key = (one.code, one.gpu) if one.gpu else one
        latest.pop(key, None)
        latest[key] = one
    return tuple(latest.values())


def _found(form: str, text: str) -> Iterator[XidMention]:
    text = text[: patterns.LONGEST]
    known = {ANY_FORM: _ANY_FORM, KERNEL_LOG: _KERNEL_LOG}.get(form)
    found: list[patterns.Match]
    found = [*(known.finditer(text) if known is not None else patterns.find_each(form, text))]
    del found[: -4 * MOST_MENTIONS]  # of several together not each is told
    for one, following in zip_longest(found, found[1:]):
        said = text[one.start() : following.start() if following is not None else None]
        gpu = _gpu(one)
        yield from (XidMention(code, gpu, said) for code in _codes(form, one))


def _codes(form: str, found: patterns.Match) -> Iterable[str]:
    groups = found.groupdict()
    if form == ANY_FORM:
        told = ("several", "list", "logged", "named", "joined")
        texts = _CODE.findall(",".join(filter(None, map(groups.get, told))))
    else:
        text = groups["xid"] if "xid" in groups else found[len(found.groups())]
        texts = [text] if text is not None and is_code(text) else []
    return (text.lstrip("0") or "0" for text in texts)


def _gpu(found: patterns.Match) -> str:
    groups = found.groupdict()
    where = groups.get("where") or groups.get("pci") or ""
    address = _ADDRESS.search(where)
    return gpu_names.pci(address[0]) if address is not None else ""
