"""The browse listener's handlers, without a listener."""

from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from fettle.browse import Known, make_browse_app, trusting
from fettle.browse.access import Access
from fettle.config import Settings
from fettle.scheduling import Answers
from fettle.scheduling.placed import PodObservers


def known(answers: Answers, settings: Settings | None = None, **fields: Any) -> Known:
    """What a process knows that has these `fields` of Known or of its PodObservers."""
    of_pods = {name: fields.pop(name) for name in PodObservers._fields if name in fields}
    pods = PodObservers.of(answers)._replace(**of_pods)
    registry = fields.pop("registry", None) or CollectorRegistry()
    return Known(answers, pods, settings or Settings(), registry, **fields)


async def reply_of(shown: Known, path: str, access: Access = trusting) -> web.Response:
    request: Any = make_mocked_request("GET", path)
    found = await make_browse_app(shown, access).router.resolve(request)
    reply = await found.handler(request)
    assert isinstance(reply, web.Response)
    return reply


async def told(shown: Known, path: str) -> tuple[int, Any]:
    """The status and the JSON of an answer to somebody who may see everything."""
    reply = await reply_of(shown, path)
    assert isinstance(reply.body, bytes)
    return reply.status, msgspec.json.decode(reply.body)
