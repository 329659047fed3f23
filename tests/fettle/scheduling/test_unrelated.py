"""What is known of another device plugin is not held against an ask that does not need it."""

import msgspec

from fettle.cluster import NodeView, UnitView
from fettle.explain.wording import text, texts
from fettle.model import Health, State
from fettle.scheduling.demand import Demand, Units
from tests.fettle import building as b
from tests.fettle.scheduling.judged import TRAINING, request, units, verdict

FUSE = "smarter-devices/fuse"


def of(domain: str, health: Health) -> Health:
    evidence = tuple(
        msgspec.structs.replace(w, evidence=msgspec.structs.replace(w.evidence, domain=domain))
        for w in health.evidence
    )
    return msgspec.structs.replace(health, evidence=evidence)


def node(own: Health, **more: object) -> NodeView:
    made = b.node(gpus=8, own=own, **more)  # type: ignore[arg-type]
    (gpu,) = made.plugins.values()
    fuse = msgspec.structs.replace(gpu, resource=FUSE, units=())
    return msgspec.structs.replace(made, plugins={**made.plugins, FUSE: fuse})


def test_a_node_is_refused_for_the_resources_of_the_plugin_that_fails_and_no_others() -> None:
    swallows = node(of("smarter-devices", b.health(0.05)))
    answer = verdict(units(TRAINING, 8), swallows)
    assert answer.score == 10
    assert tuple(texts(answer.notes)) == ("kubelet refusals for smarter-devices do not count here",)
    fuse = Demand(TRAINING, units=(Units(FUSE, 1),))
    assert not verdict(fuse, swallows).fits
    both = Demand(TRAINING, units=(Units(b.RESOURCE, 1), Units(FUSE, 1)))
    assert not verdict(both, swallows).fits
    assert not verdict(units(TRAINING), node(of("example.com", b.health(0.05)))).fits


def test_what_could_be_about_any_plugin_counts_for_all() -> None:
    assert not verdict(units(TRAINING), node(of("", b.health(0.05)))).fits
    assert not verdict(request(TRAINING), node(of("smarter-devices", b.health(0.05)))).fits


def test_the_rest_counts_as_ever() -> None:
    ill, worn = of("smarter-devices", b.health(0.05)), b.health(0.7, text="worn")
    both = msgspec.structs.replace(
        ill, state=State.UNHEALTHY, score=0.04, evidence=ill.evidence + worn.evidence
    )
    answer = verdict(units(TRAINING), node(both))
    assert "Degraded" in text(answer.refusals[0])
    assert "worn" in text(answer.refusals[0])


def test_a_unit_is_judged_without_what_its_node_has_of_others() -> None:
    swallows = node(of("smarter-devices", b.health(0.05)), units={"GPU-1": 0.5})
    plugin = swallows.plugins[b.RESOURCE]
    ill = swallows.health.evidence + b.health(0.5).evidence
    unit = UnitView("GPU-1", Health(0.02, State.UNHEALTHY, evidence=ill))
    plugins = {**swallows.plugins, b.RESOURCE: msgspec.structs.replace(plugin, units=(unit,))}
    answer = verdict(units(TRAINING, 8), msgspec.structs.replace(swallows, plugins=plugins))
    assert tuple(texts(answer.refusals)) == (
        f"{b.RESOURCE}: 7 acceptable of 8, 8 requested; the worst is Degraded (0.50): a fault",
    )
