"""Label selectors, as kubectl reads them."""

import pytest

from fettle.browse.selectors import LONGEST, read_selector
from fettle.model import BadInput

LABELS = {"app": "train", "tier": "a", "nvidia.com/gpu.product": "H100"}


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("", True),
        ("app=train", True),
        ("app==train", True),
        ("app = train , tier=a", True),
        ("app=train,tier=b", False),
        ("app!=train", False),
        ("gone!=x", True),
        ("app in (train, serve)", True),
        ("app in(serve)", False),
        ("app notin (train)", False),
        ("gone notin (x)", True),
        ("nvidia.com/gpu.product", True),
        ("!nvidia.com/gpu.product", False),
        ("!gone,app", True),
        ("gone=", False),
    ],
)
def test_each_form_of_term_selects_as_in_kubectl(text: str, *, selects: bool) -> None:
    assert read_selector(text)(LABELS) is selects


def test_an_object_without_labels_lacks_them_all() -> None:
    assert read_selector("!app")(None)
    assert not read_selector("app")(None)


@pytest.mark.parametrize(
    "text", ["a b", "=x", "a=b=c", "a in b", "a in (b", "a in ((b))", "a,,b", "a>1", "a=b c", "!"]
)
def test_what_is_no_selector_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(BadInput, match="write terms such as app=train"):
        read_selector(text)


def test_a_selector_of_any_length_is_not_read() -> None:
    with pytest.raises(BadInput, match="longer than"):
        read_selector("a," * LONGEST)
