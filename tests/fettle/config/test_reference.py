from pathlib import Path

import msgspec

from fettle.config import settings
from fettle.config.reference import reference
from fettle.config.sections import SettingsSection

ROOT = Path(__file__).parents[3]


def test_the_documented_settings_are_current() -> None:
    """If not: python -m fettle.config.reference > docs/settings.md"""
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == reference()


def test_every_setting_and_every_section_is_in_the_reference() -> None:
    text = reference()
    sections = [
        one
        for one in vars(settings).values()
        if isinstance(one, type) and issubclass(one, SettingsSection)
    ]
    fields = [
        field.encode_name
        for section in sections
        if section is not SettingsSection
        for field in msgspec.structs.fields(section)
    ]
    assert len(fields) > 40
    for name in fields:
        assert f"{name}`" in text or f"## {name}\n" in text
