"""A selector over a fleet: the nearest miss in words."""

import time

import pytest

from fettle.selectors.inspecting import nearest
from fettle.wire.resource import Device
from tests.fettle.selectors.devices import DRIVER, device

A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def gpu(model: str = "A100", memory: str = "80Gi", **more: object) -> tuple[str, Device]:
    attributes = {"model": {"string": model}, "index": {"int": 3}, "sound": {"bool": True}, **more}
    return DRIVER, device(attributes, {"memory": {"value": memory}})


FLEET = [gpu(), gpu("H100"), gpu("L4", "24Gi"), (DRIVER, device({}))]


def test_a_device_that_cannot_be_judged_is_no_miss() -> None:
    expression = f'{A}.model == "B200"'
    assert nearest(expression, [gpu("L4", odd={})]) == ""
    assert nearest(expression, [gpu("L4", odd={}), gpu()]) == 'model "A100" != "B200"'


def test_of_what_would_not_compile_nothing_is_said() -> None:
    assert nearest(f'{C}.memory > "1Gi"', FLEET) == ""


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{C}.memory.compareTo(quantity("96Gi")) >= 0', "memory 80Gi < 96Gi"),
        (f'{C}.memory.isGreaterThan(quantity("80Gi"))', "memory 80Gi <= 80Gi"),
        (f'{C}.memory == quantity("1Ti")', "memory 80Gi != 1Ti"),
        (f'{A}.model == "B200"', 'model "A100" != "B200"'),
        (f'{A}.model in ["B200", "B100"]', 'model "A100" is not in ["B200", "B100"]'),
        (f"{A}.index > 5", "index 3 <= 5"),
        (f"!{A}.sound", "sound true"),
        (f"{A}.nope == 1", f"no attribute {DRIVER}/nope"),
        (f"{C}.nope == quantity('1')", f"no capacity {DRIVER}/nope"),
        (f'{A}.?nope.orValue("x") == "y"', 'nope (none) != "y"'),
        (f'{A}.model.startsWith("B")', f'{A}.model.startsWith("B") is not true'),
        ('device.driver == "x"', f'driver "{DRIVER}" != "x"'),
        (f'{A}.model == "A100" && {A}.index == 7 && device.driver != ""', "index 3 != 7"),
        (f'!(has({A}.model))', f"has({A}.model) is true"),
    ],
)  # fmt: skip
def test_a_miss_is_put_in_words(expression: str, words: str) -> None:
    assert nearest(expression, [gpu()]) == words


def test_the_nearest_device_fails_the_fewest_conditions() -> None:
    expression = f'{A}.model == "L4" && {C}.memory.compareTo(quantity("48Gi")) >= 0'
    assert nearest(expression, FLEET) == 'model "A100" != "L4"'
    assert nearest(f"{expression} && {A}.index == 3 && {A}.model != 'A100'", FLEET) == (
        'model "H100" != "L4"'
    )


def test_where_one_matches_nothing_is_missing() -> None:
    assert nearest(f'{A}.model == "H100"', FLEET) == ""


def test_a_hostile_expression_ends_within_its_bound() -> None:
    hostile = f"{A}.map(k, k).exists(a, lists.range(20000).exists(b, a == string(b)))"
    started = time.monotonic()
    assert nearest(hostile, [gpu(uuid={"string": str(n)}) for n in range(2000)]) == ""
    assert time.monotonic() - started < 10
