"""What all reasons share."""

from typing import ClassVar

import msgspec


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One reason. `request` is always "claim/request" or "claim/request/alternative".

    As a string it is a sentence, or a part of one: `sentence`, which names fields. A type whose
    words take more than that has its own `__str__`.
    """

    sentence: ClassVar[str]

    def __str__(self) -> str:
        return self.sentence.format(**msgspec.structs.asdict(self))

    @property
    def code(self) -> str:
        return type(self).__name__
