"""A webhook that no Service reaches, as docs/installing.md sets it up."""

from __future__ import annotations

from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.installed import until_trusted
from tests.controlplane.processes import free_port


async def test_a_url_needs_its_host_among_the_names_of_the_certificate(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    port = free_port()
    await shipped.apply(api, shipped.webhook_configurations(port))
    everywhere = ["--webhook-listen", f":{port}"]
    claim = objects.claim("wrong", objects.claim_spec(33))

    without = await start_fettle("webhook", arguments=everywhere)
    await until_trusted(api)
    # The API server does not trust a certificate for other names, and the webhook fails open.
    for _ in range(3):
        assert "FTL010" not in await _asked(api, claim)
    await without.stop()

    settings = tmp_path / "settings.yaml"
    settings.write_text("webhook: {extraNames: [127.0.0.1]}\n")
    await start_fettle("webhook", arguments=everywhere, settings=settings)
    await waiting.wait_until(
        lambda: _asked(api, claim), lambda said: "FTL010" in said, what="Fettle is asked"
    )


async def _asked(api: Api, claim: Object) -> str:
    try:
        await api.create(claim, dry_run=True)
    except ApiError as error:
        return str(error)
    return ""
