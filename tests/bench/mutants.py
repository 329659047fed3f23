"""AdmissionReviews of every kind with parts spoilt at random, sent to the webhook over TLS: each is
answered, each patch fits what it was made for and is the last, and what names no policy and uses
no claims comes out as it went in.

`FETTLE_MUTANTS_CASES` says how many; a million takes about twelve minutes. The seed is printed, and
so are the first reviews that fail.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

from fettle.model import BadInput
from tests.bench import inventories
from tests.bench.cases import cases
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.bench.tls_client import Client, prepared
from tests.bench.webhooks import served
from tests.webhook.mutants import SPEC, injected, mutants
from tests.webhook.reviews import Object, encoded
from webhook.patches import Operation, apply

DEFAULT = 20_000
CONNECTIONS = 4
PLAIN_OF = 4
"""One of so many reviews names no policy and uses no claims."""
SHOWN = 3
_OPERATIONS = msgspec.json.Decoder(list[Operation])


class Result(StrEnum):
    NO_REVIEW = "refused as no review, with a 4xx"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    BROKEN = "a 5xx, or an error inside"
    UNFIT = "a patch that does not fit"
    NEEDLESS = "changed where nothing was to change"


FAILURES = (Result.BROKEN, Result.UNFIT, Result.NEEDLESS)


async def measure(house: House) -> list[Figure]:
    count, seed = cases("mutants", DEFAULT), random.SystemRandom().getrandbits(32)
    print(f"mutants: seed {seed}", file=sys.stderr)
    folder = house.folder / "mutants"
    snapshot = folder / "snapshot"
    inventories.write_snapshot(snapshot, inventories.of_models(4), nodes=4)
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [team]}
    (snapshot / "namespaces.json").write_bytes(msgspec.json.encode(listed))
    settings = {"policies": [{"name": "own", **SPEC}]}
    async with served(folder, snapshot, settings) as (fettle, tls):
        clients = [await Client.connect(fettle.webhook_port, tls) for _ in range(CONNECTIONS)]
        results = await _tried(clients, islice(_reviews(seed, await injected()), count))
        for client in clients:
            client.close()
    what = "mutated reviews"
    return [
        Figure(what, results.total(), "reviews", target=count, at_least=True),
        *(Figure(f"{what}: {r}", results[r], "reviews") for r in Result if r not in FAILURES),
        *(Figure(f"{what}: {r}", results[r], "reviews", target=0.0) for r in FAILURES),
    ]


def _reviews(seed: int, stored: list[Object]) -> Iterator[tuple[Any, bool]]:
    """Each with whether something may be changed in it."""
    for number, sent in enumerate(mutants(seed, stored)):
        plain = number % PLAIN_OF == 0
        yield (_plain(sent) if plain else sent), not plain


def _plain(value: Any) -> Any:
    """Without policies, and without claims of pods, at any depth."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _plain(part)
        for key, part in value.items()
        if key != "resourceClaims" and not key.startswith("fettle.dev/")
    }


async def _tried(clients: list[Client], reviews: Iterator[tuple[Any, bool]]) -> Counter[Result]:
    results: Counter[Result] = Counter()

    async def ask(client: Client) -> None:
        for sent, may_change in reviews:
            result = await _result(client, sent, may_change)
            if result in FAILURES and sum(results[failure] for failure in FAILURES) < SHOWN:
                print(f"mutants: {result}: {json.dumps(sent)}", file=sys.stderr)
            results[result] += 1

    await asyncio.gather(*map(ask, clients))
    return results


async def _result(client: Client, sent: Any, may_change: bool) -> Result:
    """What became of a review that both webhooks were sent."""
    patch: list[Operation] = []
    for path in ("/validate", "/mutate"):
        answer = await _answer(client, path, sent)
        if isinstance(answer, Result):
            return answer
        patch = answer
    if not patch:
        return Result.UNCHANGED
    if not may_change:
        return Result.NEEDLESS
    before = sent["request"]["object"]
    try:
        after = apply(before, patch)
    except BadInput:
        return Result.UNFIT
    again = {**sent, "request": {**sent["request"], "object": after}}
    patched_again = await _answer(client, "/mutate", again)
    if patched_again in FAILURES:
        return Result.BROKEN
    return Result.CHANGED if after != before and patched_again == [] else Result.NEEDLESS


async def _answer(client: Client, path: str, sent: Any) -> list[Operation] | Result:
    """The patch, or what else became of it."""
    status, body = await client.ask(prepared(path, encoded(sent)))
    if 400 <= status < 500:
        return Result.NO_REVIEW
    if status != 200:
        return Result.BROKEN
    response = msgspec.json.decode(body)["response"]
    if any("allowed unchecked" in warning for warning in response.get("warnings") or ()):
        return Result.BROKEN
    return _OPERATIONS.decode(base64.b64decode(response.get("patch") or "W10="))
