"""The options of `fettle serve`."""

from pathlib import Path
from typing import NamedTuple


class ServeOptions(NamedTuple):
    """The options of the command line."""

    roles: frozenset[str]
    kubeconfig: Path | None
    snapshot: Path | None
    settings: Path | None
    extender_listen: str
    webhook_listen: str
    browse_listen: tuple[str, ...]
    log_level: str
    records: Path | None = None

    def arguments(self) -> list[str]:
        """The command line that gives these options."""
        paths = {
            "kubeconfig": self.kubeconfig,
            "snapshot": self.snapshot,
            "settings": self.settings,
            "records": self.records,
        }
        given = [f"--{name}={path}" for name, path in paths.items() if path is not None]
        return [
            *("serve", *sorted(self.roles), *given),
            f"--extender-listen={self.extender_listen}",
            f"--webhook-listen={self.webhook_listen}",
            *(f"--browse-listen={address}" for address in self.browse_listen),
            f"--log-level={self.log_level}",
        ]
