"""What the site's generator (mkdocs.yml) has to know of this repository: headings have the anchors
that GitHub makes, and a link that leaves docs/ becomes the path in the repository, as text."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def anchor(heading: str, separator: str = "-") -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def inside(text: str, page: Path) -> str:
    """The page's Markdown, with links to files outside docs/ taken out. A file that is not there
    keeps its link, and the strict build fails."""

    def told(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if "://" in link[2] or not target.exists() or target.is_relative_to(_ROOT / "docs"):
            return link[0]
        path = str(target.relative_to(_ROOT))
        label = link[1].strip("`")
        return f"`{path}`" if path.endswith(label) else f"{link[1]} (`{path}`)"

    return _LINK.sub(told, text)


def on_page_markdown(markdown: str, page: object, **_: object) -> str:
    """mkdocs calls it for each page."""
    return inside(markdown, Path(page.file.abs_src_path))  # type: ignore[attr-defined]
