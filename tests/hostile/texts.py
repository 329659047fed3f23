"""Texts that patterns are slow to refuse: pieces of what Fettle looks for, again and again."""

from hypothesis import strategies as st

PIECES = (
    "a",
    " ",
    "\n",
    "\x00",
    "é",
    "9",
    "0",
    "-",
    '"',
    "\\",
    "{",
    "[",
    "{}",
    ",",
    ":",
    ";",
    ".",
    "/",
    "=",
    "*",
    "GPU:0 ",
    ";GPU:0",
    "GPU-a/",
    "0000:3b:00:",
    "PCI:0000:3b:00.0 ",
    "NVSWITCH:0 ",
    "ErrorCode:1 ",
    "ErrorCode:",
    "Recommended Action=",
    "Recommended Action=NONE;",
    "Recommended Action=a",
    "GPU:1 Recommended Action=A;",
    "xid",
    "Xid ",
    "xid 1,",
    "xid(",
    "xids 1%,,",
    "1%,,",
    ",, 1",
    "xid errors 1 and ",
    "XID 0",
    "NVRM: Xid (PCI:0000:3b:00): 79, ",
    "NVRM: Xid (PCI:0000:3b:00",
    "recovery action changed from ",
    "XID 154: recovery action changed from 0 to 0xffffffffff",
    "boot_id ",
    "boot id: 0",
    "/dev/nvidia",
    "lstat /dev/x",
    'custom device "/dev/',
    "claim ",
    "Claim not ",
    "ResourceClaim ",
    "DRA driver ",
    "NodePrepareResources",
    "requested: 1, used: 1",
    "requested: 9",
    "Pod was rejected: ",
    "nvidia.com/gpu",
    "GPU-11111111-2222-3333-4444-555555555555,",
    "GPU-1,1,1,1,1,1,1,9:",
    '{"id":"GPU-1","index":1},',
    '"48":',
    '"48":true,',
    "2026-11-28T00:00:00Z",
)

repetitions = st.one_of(
    st.sampled_from(PIECES),
    st.tuples(st.sampled_from(PIECES), st.sampled_from(PIECES)).map("".join),
    st.text(min_size=1, max_size=8),
)
"""Pieces to be repeated."""
heads = st.one_of(st.just(""), st.sampled_from(PIECES))
"""What may stand before them, such as what begins a list."""


def repeated(piece: str, length: int, head: str = "", end: str = "") -> str:
    """So many characters of it."""
    return (head + piece * (length // len(piece) + 1))[:length] + end
