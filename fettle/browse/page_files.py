"""The page itself: files of the package, for everybody, since they hold no data. What they show,
they ask for as anybody else does."""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from aiohttp import web

FOLDER = "page"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What a browser lets the page do. Text that a tenant wrote is shown there, so nothing that is
written into the page may ever run."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PageFile(NamedTuple):
    """`tag` changes with the content."""

    content: bytes
    type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By the path that they are served at."""
    found = {}
    for file in resources.files("fettle.browse").joinpath(FOLDER).iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            content = file.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:16]
            path = "/" if file.name == INDEX else f"/{FOLDER}/{file.name}"
            found[path] = PageFile(content, TYPES[suffix], tag)
    return found


async def page_file(request: web.Request) -> web.Response:
    """One of them."""
    file = page_files()[request.path]
    headers = HEADERS | {"ETag": f'"{file.tag}"'}
    if any(one.value == file.tag for one in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, content_type=file.type, charset="utf-8", headers=headers)
