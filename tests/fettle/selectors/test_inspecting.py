"""A selector over a fleet: the nearest miss in words."""

import time
from itertools import permutations

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
        (f'{C}.memory.compareTo(quantity("96Gi")) != -1', "memory 80Gi < 96Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) >= 1', "memory 80Gi <= 80Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) == 1', "memory 80Gi <= 80Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) != 0', "memory 80Gi == 80Gi"),
        (f'0 <= {C}.memory.compareTo(quantity("96Gi"))', "memory 80Gi < 96Gi"),
        (f'quantity("96Gi").compareTo({C}.memory) < 0', "memory 80Gi <= 96Gi"),
        (f'1 == quantity("8Gi").compareTo({C}.memory)', "memory 80Gi >= 8Gi"),
        (f'!quantity("96Gi").isGreaterThan({C}.memory)', "memory 80Gi < 96Gi"),
        (f'{C}.memory.compareTo(quantity("1Gi")) > 1',
         f'({C}.memory.compareTo(quantity("1Gi")) > 1) is not true'),
        (f'{C}.memory.compareTo(quantity("1Gi")) == {A}.index',
         f'({C}.memory.compareTo(quantity("1Gi")) == device… is not true'),
        (f"5 < {A}.index", "index 3 <= 5"),
        (f"{A}.index > {A}.links", "index 3 <= links 8"),
        (f"!({A}.index < 5)", "index 3 < 5"),
        (f'!({A}.model in ["A100"])', 'model "A100" is in ["A100"]'),
        (f'{A}.model == "B200" || {A}.index > 5', 'model "A100" != "B200" and index 3 <= 5'),
        (f"{A}.index == 1 || {A}.nope == 1 || {A}.index == 1 || {A}.index == 2 || !{A}.sound",
         f"index 3 != 1 and no attribute {DRIVER}/nope and index 3 != 2 and …"),
        (f'["a"].filter(x, {A}.model == x).size() > 0',
         f'["a"].filter(x, ({A}.model == x)).size() <= 0'),
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
    assert nearest(expression, [gpu(links={"int": 8})]) == words


def test_the_nearest_device_fails_the_fewest_conditions() -> None:
    expression = f'{A}.model == "L4" && {C}.memory.compareTo(quantity("48Gi")) >= 0'
    assert nearest(expression, FLEET) == 'model "A100" != "L4"'
    assert nearest(f"{expression} && {A}.index == 3 && {A}.model != 'A100'", FLEET) == (
        'model "H100" != "L4"'
    )


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{C}.memory.compareTo(quantity("10Gi")) <= 0', "memory 24Gi > 10Gi"),
        (f'{C}.memory.isGreaterThan(quantity("1Ti"))', "memory 100G <= 1Ti"),
        (f"{A}.index < 0", "index 1 >= 0"),
        (f"{A}.index > 9 && {A}.model != ''", "index 7 <= 9"),
        (f"{A}.model == 'B200' && {A}.index > 9", "index 7 <= 9"),
    ],
)
def test_of_devices_that_fail_the_same_condition_the_one_closest_to_meeting_it_is_nearest(
    expression: str, words: str
) -> None:
    fleet = [
        (DRIVER, device({})),
        gpu("B200", "80Gi", index={"int": 5}),
        gpu("B200", "24Gi", index={"int": 7}),
        gpu("B200", "100G", index={"int": 1}),
    ]
    for order in permutations(fleet):
        assert nearest(expression, order) == words


def test_where_one_matches_nothing_is_missing() -> None:
    assert nearest(f'{A}.model == "H100"', FLEET) == ""


def test_a_hostile_expression_ends_within_its_bound() -> None:
    hostile = f"{A}.map(k, k).exists(a, lists.range(20000).exists(b, a == string(b)))"
    started = time.monotonic()
    assert nearest(hostile, [gpu(uuid={"string": str(n)}) for n in range(2000)]) == ""
    assert time.monotonic() - started < 10
