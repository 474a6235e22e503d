"""Settings: flag > environment > file > default."""

from everstep.config.reading import child_environment, no_color, process_settings, settings
from everstep.config.schema import (
    AzureSettings,
    GcsSettings,
    ProcessSettings,
    S3Settings,
    Settings,
    StoreSettings,
)
from everstep.config.values import Secret

__all__ = [
    "AzureSettings",
    "GcsSettings",
    "ProcessSettings",
    "S3Settings",
    "Secret",
    "Settings",
    "StoreSettings",
    "child_environment",
    "no_color",
    "process_settings",
    "settings",
]
