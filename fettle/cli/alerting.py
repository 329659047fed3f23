"""`fettle rules --prometheus`: the rules about metrics as a file of alerting rules."""

from pathlib import Path

import yaml

from fettle.config import load_settings
from fettle.health import load_rules, metrics


def rules_file(settings: Path | None) -> str:
    """The shipped rules, with the rows of the settings' rules file. Raises SettingsError."""
    rows = load_rules(load_settings(settings).health.rules_file)
    return yaml.safe_dump(metrics.alerting_rules(rows), sort_keys=False, width=100)
