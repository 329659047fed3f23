"""The YAML of files that are our own, settings and rules: the value, or one sentence that says
where it is wrong and what to do. `fettle/cluster/feeds/documents.py` reads manifests and snapshots.
"""

from typing import Any

import yaml
from yaml.constructor import ConstructorError

_LONGEST = 40


def value_of(text: str) -> Any:
    """The value of a YAML document, None if there is none; raises ValueError with one sentence."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        said = " ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{where}{_one_line(said)}") from error
    except yaml.YAMLError as error:
        said = str(error).replace('in "<unicode string>", ', "")
        raise ValueError(_one_line(said)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """If a key is given twice, YAML would silently keep the last one."""
        made: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in made.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    said = f"{key.value[:_LONGEST]!r} is given twice"
                    raise ConstructorError(None, None, said, key.start_mark)
                seen.add((key.tag, key.value))
        return made

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Invalid scalars, such as a day that no month has, are also errors in the file."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError as error:
            raise ConstructorError(
                None, None, f"{value!r} contains an invalid character", node.start_mark
            ) from error
        except (ValueError, KeyError, IndexError) as error:
            short = str(node.value)[:_LONGEST]
            raise ConstructorError(
                None, None, f"{short!r} is not what it looks like; quote it", node.start_mark
            ) from error
        return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
