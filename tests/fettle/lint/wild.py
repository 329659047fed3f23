"""Wild JSON: anything at all, and good objects of which a few parts were replaced by anything."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
ANYTHING: SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@st.composite
def spoilt(draw: DrawFn, value: Any) -> Any:
    """The value with up to three of its parts, at any depth, replaced or removed."""
    for _ in range(draw(st.integers(0, 3))):
        value = draw(_spoilt_once(value))
    return value


@st.composite
def _spoilt_once(draw: DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 7)) == 0:
        return draw(ANYTHING)
    if isinstance(value, list):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(_spoilt_once(value[index])), *value[index + 1 :]]
    key = draw(st.sampled_from(sorted(value)))
    if draw(st.integers(0, 4)) == 0:
        return {name: part for name, part in value.items() if name != key}
    return {**value, key: draw(_spoilt_once(value[key]))}
