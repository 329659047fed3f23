"""Whether what Fettle knows is complete and fresh enough to refuse anything on it."""

from collections.abc import Iterable

from fettle.cluster.view import SourceStatus


def problems(
    sources: Iterable[SourceStatus], now: float, silent_after_s: float, *, notes: bool = True
) -> list[str]:
    """One sentence for each source that keeps Fettle from being ready; empty if it is ready.

    `now` is `time.monotonic`, as in `SourceStatus.contact_at`. A quiet source (bookmarks, no
    events) is ready, a silent one is not. Without `notes`, which change between retries, the
    sentences are stable enough for a pod's condition.
    """
    found = []
    for source in sources:
        if not source.needed:
            continue
        note = f": {source.note}" if notes and source.note else ""
        if not source.synced:
            found.append(f"{source.name} is not synced{note}")
        elif source.served and now - source.contact_at > silent_after_s:
            found.append(f"{source.name} has been silent for more than {silent_after_s:g} s{note}")
    return found


def report(sources: Iterable[SourceStatus], now: float) -> list[str]:
    """One line for each source, for `/readyz?verbose`."""
    lines = []
    for source in sources:
        if not source.served:
            state = f"not served by this cluster ({source.note})" if source.note else "not served"
        elif not source.synced:
            state = f"not synced {source.note}".rstrip()
        else:
            state = f"synced, last contact {now - source.contact_at:.1f} s ago"
            state += f"; lost: {source.note}" if source.note else ""
        lines.append(f"{source.name}: {state}")
    return lines
