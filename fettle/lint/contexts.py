"""What a view of the cluster can tell a rule."""

from typing import NamedTuple

from fettle.view import View
from fettle.wire import resource


class ViewContext(NamedTuple):
    """Answers from one view. Before it is synced nothing is known, so nothing is denied for it."""

    view: View
    namespace: str = "default"

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self.view.claims.get(f"{namespace}/{name}") if self.view.synced else None

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self.view.templates.get(f"{namespace}/{name}") if self.view.synced else None
