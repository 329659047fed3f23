"""How an operator sees whether the API server asks the webhook."""

from tests.fettle.lint.builders import knowing
from tests.webhook.conftest import Serve
from tests.webhook.reviews import pod
from webhook.app import last_asked


async def test_when_each_webhook_was_last_asked_is_told(serve: Serve) -> None:
    asked = last_asked()
    served = await serve(knowing(), asked=asked)
    assert asked.note() == "webhook: the API server has not asked yet"
    await served.ask("/validate", pod())
    assert asked.note() == "webhook: last asked: mutate never, validate 0 s ago"
    await served.ask("/mutate", pod())
    assert asked.note() == "webhook: last asked: mutate 0 s ago, validate 0 s ago"


async def test_what_is_not_a_review_is_nothing_that_the_api_server_asked(serve: Serve) -> None:
    asked = last_asked()
    served = await serve(knowing(), asked=asked)
    await served.post("/mutate", b"{}")
    await served.post("/elsewhere", b"{}")
    assert asked.note() == "webhook: the API server has not asked yet"
