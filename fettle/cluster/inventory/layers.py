"""Mappings that can be shown as they stand: what was shown never changes, and costs as much as what
changed since it was last shown, however many entries there are. In a full cluster a copy of its
claims and pods, twenty times a second, would be most of what a view costs. Pure.
"""

from collections import UserDict
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar

V = TypeVar("V")

_GONE: Any = object()
"""In place of a value that is there no more."""
_SAME: Any = object()
_LEAST = 64
_SHARE = 32
"""One in so many entries may lie in the upper layer: to copy that, and now and then all of them,
then costs little."""


class Overlay(Mapping[str, V]):
    """A dict that nobody changes any more, and over it what is different by now.

    Whoever goes through all entries has both made into one dict, which others do without; the
    entries are in the order of that.
    """

    __slots__ = ("_base", "_length", "_over")

    def __init__(self) -> None:
        self._base: dict[str, V] = {}
        self._over: dict[str, V] = {}
        self._length = 0

    def changed(self, changes: Mapping[str, V], length: int) -> "Overlay[V]":
        """With these values, of which `_GONE` is none; it then has so many entries."""
        made = Overlay[V]()
        made._base, made._over, made._length = self._base, {**self._over, **changes}, length
        if len(made._over) > max(_LEAST, length // _SHARE):
            made._whole()
        return made

    def _whole(self) -> dict[str, V]:
        if self._over:
            whole = self._base | self._over
            for key in [key for key, value in self._over.items() if value is _GONE]:
                del whole[key]
            self._base, self._over = whole, {}
        return self._base

    def __getitem__(self, key: str) -> V:
        value = self._over.get(key, _SAME)
        if value is _GONE:
            raise KeyError(key)
        return self._base[key] if value is _SAME else value

    def get(self, key: str, default: Any = None) -> Any:
        value = self._over.get(key, _SAME)
        if value is _GONE:
            return default
        return self._base.get(key, default) if value is _SAME else value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _GONE) is not _GONE  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def keys(self) -> KeysView[str]:
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        return self._whole().values()

    def items(self) -> ItemsView[str, V]:
        return self._whole().items()


class LayeredDict(UserDict[str, V]):
    """A dict that can be `shown`: the same mapping again as long as nothing is put or dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Overlay[V] = Overlay()
        self._changed: dict[str, None] = {}

    def __setitem__(self, key: str, value: V) -> None:
        self.data[key] = value
        self._changed[key] = None

    def __delitem__(self, key: str) -> None:
        del self.data[key]
        self._changed[key] = None

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    def shown(self) -> Mapping[str, V]:
        if self._changed:
            changes = {key: self.data.get(key, _GONE) for key in self._changed}
            self._shown = self._shown.changed(changes, len(self.data))
            self._changed.clear()
        return self._shown
