"""Text between quotation marks, as Go writes it.

Runs in the worker.
"""

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
_HEX = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | ESCAPES


def quoted(text: str) -> str | None:
    """Go's `%q`; None for other than ASCII, where what can be printed depends on Go's release."""
    return f'"{text.translate(_HEX)}"' if text.isascii() else None
