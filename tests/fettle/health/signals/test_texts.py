import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from fettle.health.signals.reports import TEXT_LIMIT, one_line

TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.text() | st.text("a\u202e\u2066\u200f\u2029"))
def test_no_text_can_steer_a_terminal_or_run_over_a_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= TEXT_LIMIT
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in TURNING]


def test_an_escape_sequence_is_only_its_letters() -> None:
    assert one_line("held \x1b]0;PWN\x07\x1b[31mred") == "held ]0;PWN [31mred"
