"""Books of evidence that fades."""

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.model import UnitId
from tests.fettle.health.incidents import MINUTE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, UUID, condition, node

GPU = UnitId("gpu-1", "nvidia.com/gpu", UUID)

MESSAGE = f"ErrorCode:{{}} GPU_UUID:{UUID} text Recommended Action=COMPONENT_RESET;"


def a_book() -> HealthBook:
    return HealthBook(HealthSettings(), RULES)


def flap(
    book: HealthBook, begins: list[float], lasts_s: float = MINUTE, check: str = "GpuNvlinkWatch"
) -> float:
    """A fault of a GPU that begins at these times; returns when it was last over."""
    at = NOW
    for at in begins:
        tell(book, node(condition(check, "True", "x", MESSAGE.format("X"), at=at)), at)
        of(book, GPU, at)
        at += lasts_s
        tell(book, node(condition(check, "False", "x", at=at)), at)
        of(book, GPU, at)
    return at
