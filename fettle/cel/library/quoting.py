"""Text between quotation marks, as Go writes it.

Runs in the worker.
"""

import unicodedata

ESCAPES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)
_ASCII = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | ESCAPES


def quoted(text: str) -> str | None:
    """Go's `%q`; None where a character is none of Unicode's, or newer than Python knows it."""
    text = text.translate(_ASCII)
    if not text.isprintable():
        strange = {char for char in text if not char.isprintable()}
        if any(unicodedata.category(char) == "Cn" for char in strange):
            return None
        text = text.translate({ord(char): _escaped(ord(char)) for char in strange})
    return f'"{text}"'


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
