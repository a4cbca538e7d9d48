"""Settings and flags of an installation."""

from pathlib import Path

from service.settings import Settings
from tests.support import postgres


def settings_at(data: Path) -> Settings:
    """The settings of an installation with a data folder, or on PostgreSQL with the database of that folder."""
    return Settings(data=data, database=postgres.database_of(data), verify_answers=True)


def flags_of(settings: Settings) -> list[str]:
    """The flags of a command that select the data of some settings."""
    return ["--data", str(settings.data), *(["--database", settings.database] if settings.database else [])]
