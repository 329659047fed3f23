"""The engine answers from memory, and no hostile expression harms the others."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from fettle.cel.runtime.protocol import OutcomeKind
from fettle.model import WorkerError
from tests.fettle.cel.devices import AMOUNTS, DRIVER, GPU, MODEL, device
from tests.fettle.cel.engines import SOUND, SPINNING, A, decided, engine, fleet, worker

LINKS = device({**MODEL, "links": {"ints": list(range(48))}})


async def test_nothing_is_known_before_it_is_evaluated() -> None:
    async with engine() as selectors:
        assert selectors.outcome(SOUND, DRIVER, GPU) is None


async def test_each_outcome_is_remembered_with_its_reason() -> None:
    cases = {
        SOUND: OutcomeKind.MATCH,
        f'{A}.model == "H100"': OutcomeKind.NO_MATCH,
        f"{A}.nope": OutcomeKind.WOULD_ABORT,
        f'quantity("1e999") == {A}.model': OutcomeKind.UNDECIDED,
    }
    async with engine() as selectors:
        await selectors.start()
        await selectors.evaluate(cases, [(DRIVER, GPU)])
        outcomes = {text: selectors.outcome(text, DRIVER, GPU) for text in cases}
    assert {text: outcome.kind for text, outcome in outcomes.items() if outcome} == cases
    assert "nope" in str(outcomes[f"{A}.nope"])


async def test_devices_with_the_same_fingerprint_are_evaluated_once() -> None:
    async with engine() as selectors:
        await selectors.evaluate([SOUND], fleet(3))
        unseen = device({**MODEL, "uuid": {"string": "GPU-other"}}, AMOUNTS)
        assert selectors.outcome(SOUND, DRIVER, unseen) == (OutcomeKind.MATCH, "")
        other = device({**MODEL, "model": {"string": "H100"}})
        assert selectors.outcome(SOUND, DRIVER, other) is None


async def test_an_expression_that_reads_the_whole_device_is_evaluated_for_each() -> None:
    expression = f'{A}.exists(n, n == "uuid") && {A}.uuid != "GPU-7"'
    devices = fleet(200)
    async with engine() as selectors:
        await selectors.evaluate([expression], devices)
        kinds = [o.kind for _, d in devices if (o := selectors.outcome(expression, DRIVER, d))]
    assert kinds.count(OutcomeKind.MATCH) == 199
    assert kinds[7] is OutcomeKind.NO_MATCH


async def test_a_device_that_cannot_be_judged_is_undecided_with_the_reason() -> None:
    broken = device({**MODEL, "odd": {}})
    async with engine() as selectors:
        await selectors.evaluate([SOUND], [(DRIVER, broken), (DRIVER, GPU)])
        assert selectors.outcome(SOUND, DRIVER, GPU) == (OutcomeKind.MATCH, "")
        outcome = selectors.outcome(SOUND, DRIVER, broken)
    assert outcome is not None
    assert outcome.undecided
    assert "odd" in outcome.reason


async def test_an_expression_that_is_too_long_is_undecided_at_once() -> None:
    async with engine() as selectors:
        await selectors.evaluate(["true" + " " * 20_000], [(DRIVER, GPU)])
        outcome = selectors.outcome("true" + " " * 20_000, DRIVER, GPU)
        assert selectors.worker_pid is None
    assert outcome is not None
    assert outcome.undecided


HOSTILE = [
    "(" * 5000 + "true" + ")" * 5000,
    f"{A}.links.all(a, " * 20 + "true" + ")" * 20,
    "cel.bind(a, [1], " + "cel.bind(a, a + a, " * 60 + "a == [1]" + ")" * 61,
    '"' + "\\101" * 2500,
    'quantity("1e999999999") == quantity("1")',
    "optional.of(1)" + ".optMap(x, x)" * 100 + ".hasValue()",
    "[" + "[1, 2, 3, 4, 5, 6, 7, 8, 9]," * 300 + "[1]].flatten().distinct() == [1]",
    "lists.range(1000000).all(x, lists.range(1000000).all(y, true))",
    '"' + "x" * 5000 + '".replace("", "' + "y" * 4000 + '") == ""',
    "'%.999999f'.format([1.5]) == ''",
    "cel.bind(a, {1: 1}, " + "cel.bind(a, {a: a}, " * 200 + "true" + ")" * 201,
    "1" * 9000 + " == 1",
    f'("{"a" * 300}" + {A}.model).matches("{"(a{0,500})" * 300}" + {A}.model)',
]


@pytest.mark.long
async def test_hostile_expressions_never_match_and_the_others_are_decided() -> None:
    async with engine() as selectors:
        await selectors.evaluate([*HOSTILE, SOUND], [(DRIVER, LINKS)])
        outcomes = [selectors.outcome(text, DRIVER, LINKS) for text in HOSTILE]
        assert selectors.outcome(SOUND, DRIVER, LINKS) == (OutcomeKind.MATCH, "")
    assert all(outcome and not outcome.matches and outcome.reason for outcome in outcomes)


async def test_a_row_that_misses_the_deadline_is_undecided_and_the_others_are_decided() -> None:
    async with engine(SPINNING) as selectors:
        await selectors.evaluate(["true"], [("spin.example.com", GPU), (DRIVER, GPU)])
        slow = selectors.outcome("true", "spin.example.com", GPU)
        assert selectors.outcome("true", DRIVER, GPU) == (OutcomeKind.MATCH, "")
    assert slow is not None
    assert slow.undecided
    assert "too long" in slow.reason


async def test_an_expression_that_is_slow_repeatedly_is_given_up() -> None:
    whole = f'{A}.exists(n, n == "uuid")'
    devices = [("spin.example.com", of) for _, of in fleet(300)]
    async with engine(SPINNING) as selectors:
        await selectors.evaluate([whole, SOUND], [*devices, (DRIVER, GPU)])
        outcomes = [selectors.outcome(whole, "spin.example.com", of) for _, of in devices]
    assert all(outcome is not None and outcome.undecided for outcome in outcomes)


async def test_a_worker_killed_while_it_evaluates_costs_no_outcome() -> None:
    expressions = [f"{SOUND} && {n} == {n}" for n in range(300)]
    async with engine() as selectors:
        await selectors.start()
        evaluating = asyncio.create_task(selectors.evaluate(expressions, fleet(5)))
        while not any(selectors.outcome(text, DRIVER, GPU) for text in expressions[3:]):
            await asyncio.sleep(0)
        assert selectors.worker_pid is not None
        os.kill(selectors.worker_pid, signal.SIGKILL)
        await evaluating
        outcomes = [selectors.outcome(text, DRIVER, GPU) for text in expressions]
    assert outcomes == [(OutcomeKind.MATCH, "")] * 300


@pytest.mark.long
async def test_a_worker_that_does_not_answer_is_replaced() -> None:
    async with engine(wait_s=1.0) as selectors:
        await selectors.start()
        assert selectors.worker_pid is not None
        os.kill(selectors.worker_pid, signal.SIGSTOP)
        assert await decided(selectors) == (OutcomeKind.MATCH, "")


async def test_a_cancelled_evaluation_is_done_the_next_time() -> None:
    expressions = [f"{SOUND} && {n} == {n}" for n in range(200)]
    async with engine() as selectors:
        await selectors.start()
        evaluating = asyncio.create_task(selectors.evaluate(expressions, fleet(5)))
        while selectors.outcome(expressions[3], DRIVER, GPU) is None:
            await asyncio.sleep(0)
        evaluating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluating
        await selectors.evaluate(expressions, fleet(5))
        assert all(selectors.outcome(text, DRIVER, GPU) for text in expressions)


async def test_a_caller_that_stops_waiting_does_not_disturb_the_others() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    heavy = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d > 0))))"
    async with engine() as selectors:
        await selectors.start()
        worker = selectors.worker_pid
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await selectors.evaluate([heavy], fleet(5))
        assert await decided(selectors) == (OutcomeKind.MATCH, "")
        assert selectors.worker_pid == worker


async def test_a_worker_finishes_starting_after_its_caller_stopped_waiting() -> None:
    async with engine() as selectors:
        asking = asyncio.create_task(decided(selectors))
        async with asyncio.timeout(60):
            while not selectors.worker_starts:
                await asyncio.sleep(0.001)
            asking.cancel()
            assert await decided(selectors) == (OutcomeKind.MATCH, "")
        assert selectors.worker_starts == 1


async def test_output_that_libraries_print_in_the_worker_does_not_disturb_it() -> None:
    printing = worker("""
        import os
        sound = worker.judge
        def judge(prepared, row):
            print("noise", flush=True)
            os.write(1, b"noise")
            return sound(prepared, row)
        worker.judge = judge
    """)
    async with engine(printing) as selectors:
        assert await decided(selectors) == (OutcomeKind.MATCH, "")


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "print('garbage ' * 100)",
        "import os; os.write(1, b'\\xff\\xff\\xff\\xff'); input()",
        "import os; os.write(1, b'\\0\\0\\0\\2\\xc1\\xc1'); input()",
        "import sys; sys.exit(3)",
    ],
    ids=["garbage", "a huge length", "no message", "an end"],
)
async def test_a_worker_that_answers_nonsense_leaves_outcomes_unknown(code: str) -> None:
    async with engine((sys.executable, "-c", code), wait_s=0.5) as selectors:
        outcome = await decided(selectors)
    assert outcome is None or outcome.undecided


@pytest.mark.long
async def test_a_worker_that_recovers_is_used_again(tmp_path: Path) -> None:
    flag = tmp_path / "well"
    ailing = worker(f"""
        import pathlib, sys
        if not pathlib.Path({str(flag)!r}).exists():
            sys.exit(1)
    """)
    async with engine(ailing) as selectors:
        first = await decided(selectors)
        flag.touch()
        assert await decided(selectors) == (OutcomeKind.MATCH, "")
    assert first is None


async def test_a_worker_that_cannot_be_started_is_an_error_at_start_only() -> None:
    async with engine(("/nonexistent/python",)) as selectors:
        with pytest.raises(WorkerError, match="cannot be started"):
            await selectors.start()
        await selectors.evaluate([SOUND], [(DRIVER, GPU)])
        assert selectors.outcome(SOUND, DRIVER, GPU) is None


async def test_the_least_lately_used_expressions_are_forgotten() -> None:
    expressions = [f"{n} == {n}" for n in range(5)]
    async with engine(expressions=3) as selectors:
        await selectors.evaluate(expressions[:3], [(DRIVER, GPU)])
        assert selectors.outcome(expressions[0], DRIVER, GPU)
        await selectors.evaluate(expressions[3:], [(DRIVER, GPU)])
        kept = [text for text in expressions if selectors.outcome(text, DRIVER, GPU)]
    assert kept == [expressions[0], expressions[3], expressions[4]]


async def test_outcomes_are_bounded_in_number() -> None:
    whole = f'{A}.exists(n, n == "uuid")'
    async with engine(rows=100) as selectors:
        await selectors.evaluate([SOUND], [(DRIVER, GPU)])
        await selectors.evaluate([whole], fleet(150))
        assert selectors.outcome(SOUND, DRIVER, GPU) is None
        assert selectors.outcome(whole, DRIVER, fleet(1)[0][1]) is not None


async def test_two_evaluations_at_once_do_not_disturb_each_other() -> None:
    one = [f"{n} == {n}" for n in range(40)]
    other = [f"{n} != {n}" for n in range(40)]
    async with engine() as selectors:
        await asyncio.gather(selectors.evaluate(one, fleet(3)), selectors.evaluate(other, fleet(3)))
        assert all(selectors.outcome(t, DRIVER, GPU) == (OutcomeKind.MATCH, "") for t in one)
        assert all(selectors.outcome(t, DRIVER, GPU) == (OutcomeKind.NO_MATCH, "") for t in other)
