"""From settings to the client that answers."""

from __future__ import annotations

from pathlib import Path

from bub.builtin.local_model import PREFIX, LocalModelClient, is_available
from bub.builtin.settings import ModelSettings, data_folder
from bub.core.republic_model import RepublicModelClient
from bub.model import ModelClient


def configured_client(settings: ModelSettings) -> ModelClient | None:
    """The client for the configured model; the local one when nothing is configured and the extra is there; else None.

    Raises:
        ConfigError: The setting names no model that there is.
    """
    if settings.model is None:
        return LocalModelClient(None, folder=data_folder(), max_tokens=settings.max_tokens) if is_available() else None
    if settings.model.startswith(PREFIX):
        name = settings.model.removeprefix(PREFIX)
        path = Path(name).expanduser() if name else None
        return LocalModelClient(path, folder=data_folder(), max_tokens=settings.max_tokens)
    options = {"api_key": settings.api_key, "api_base": settings.api_base, "timeout": settings.timeout}
    return RepublicModelClient(
        settings.model,
        fallbacks=settings.fallbacks,
        max_tokens=settings.max_tokens,
        provider_options={name: value for name, value in options.items() if value is not None},
    )
