"""The schemas of drivers' configurations that an operator gives, such as a mounted ConfigMap."""

from pathlib import Path

from fettle.errors import SettingsError
from fettle.lint.drivers import Driver, Drivers, read
from fettle.settings import LintSettings


def drivers(settings: LintSettings) -> Drivers:
    """The shipped drivers with those of the settings; raises SettingsError with the file."""
    given: dict[str, Driver] = {}
    if settings.driver_schemas is not None:
        folder = Path(settings.driver_schemas)
        if not folder.is_dir():
            raise SettingsError(f"lint.driverSchemas: {folder} is no folder")
        for path in sorted(folder.glob("*.json")):
            try:
                driver = read(path.read_bytes(), path.name)
            except OSError as error:
                raise SettingsError(f"driver schema {path}: {error.strerror}") from error
            given[driver.driver] = driver
    return Drivers(given, settings.driver_features)
