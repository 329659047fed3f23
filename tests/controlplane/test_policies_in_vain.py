"""What cannot be meant: what DevicePolicies say in vain, and values of wrong types."""

from __future__ import annotations

from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.definitions import define_policies
from tests.controlplane.installed import start_registered
from tests.controlplane.objects import policy
from tests.controlplane.waiting import wait_until
from tests.fettle.lint.test_wrong_types import WRONG

VAIN: Object = {
    "validation": {"rules": {"FTL999": "Deny"}},
    "placement": {"requires": [{"expression": "device.driver == 'x' && nosuch"}]},
}


async def test_a_policy_that_speaks_in_vain_is_warned_of_stored_and_counted(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    await api.create(policy("old", VAIN))
    fettle = await start_registered(api, start_fettle, "webhook")
    await wait_until(
        lambda: warnings_of(api, policy("new", VAIN)),
        lambda said: "FTL104 spec.validation.rules.FTL999" in said and "FTL105" in said,
        what="the webhook is asked",
    )
    assert (
        await warnings_of(api, policy("good", {"validation": {"rules": {"FTL010": "Warn"}}})) == ""
    )

    async def metrics() -> str:
        return str((await fettle.browse("/metrics"))[1])

    await wait_until(
        metrics,
        lambda text: (
            "fettle_webhook_ignored_rules 1.0" in text and "fettle_ignored_requirements 1.0" in text
        ),
        what="what is stored is counted",
    )
    log = (fettle.folder / f"{fettle.name}.log").read_text()
    assert log.count("a policy names a rule that does not exist") == 1


async def warnings_of(api: Api, manifest: Object) -> str:
    await api.create(manifest, dry_run=True)
    return " ".join(api.warnings)


async def test_values_of_wrong_types_are_refused_by_the_api_server(api: Api) -> None:
    accepted = {}
    for index, (wrong, field, *_) in enumerate(WRONG):
        try:
            await api.create(named(wrong, f"w{index}"), dry_run=True)
        except ApiError as error:
            if error.code == 400:
                continue
            accepted[field] = str(error)
        else:
            accepted[field] = "accepted"
    assert accepted == {}


def named(object: Object, name: str) -> Object:
    return {**object, "metadata": {**object["metadata"], "name": name}}
