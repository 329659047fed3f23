"""How a TrainJob hands on its policy: as a patch, under our name, of the JobSet made for it.

Its pods come from the template of a runtime, which other TrainJobs share, so there is nothing of
its own to stamp (Kubeflow Trainer 2.2 and later). The JobSet then hands it to its pods.
"""

from fettle.lint.raw import mapping, mappings, strings
from fettle.policy import ANNOTATIONS
from webhook.injecting import Injecting
from webhook.places import Place

MANAGER = "fettle.dev/webhook"
_PATCHES = Place().at("spec", "runtimePatches")


def hand_on(injecting: Injecting) -> None:
    own = strings(mapping(injecting.document, "metadata").get("annotations"))
    annotations = {key: own[key] for key in ANNOTATIONS if key in own}
    patches = mapping(injecting.document, "spec").get("runtimePatches")
    if not annotations or any(p.get("manager") == MANAGER for _, p in mappings(patches)):
        return
    patch = {
        "manager": MANAGER,
        "trainingRuntimeSpec": {"template": {"metadata": {"annotations": annotations}}},
    }
    name = _PATCHES.entry(0, MANAGER).name
    injecting.append(_PATCHES, patch, name=name, recorded=annotations)
