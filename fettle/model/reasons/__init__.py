"""Why a node or a device does not suit a pod, as values: a closed set of types with fields.

Whoever finds a reason makes it; `str` of it is its sentence, which stands beside the fields and is
made when somebody asks. The name of a type is its `code`, which JSON shows beside the text: an
interface, as `docs/reasons.md` says. Stands beside verdict in *watch → inventory → health →
verdict → answer*.
"""

from fettle.model.reasons.allocator import *
from fettle.model.reasons.attempt_errors import *
from fettle.model.reasons.base import *
from fettle.model.reasons.claims import *
from fettle.model.reasons.notes import *
from fettle.model.reasons.obstacles import *
from fettle.model.reasons.pods import *
from fettle.model.reasons.policy import *
from fettle.model.reasons.undecided import *
from fettle.model.reasons.units import *
