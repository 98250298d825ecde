"""From settings to the client that answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bub.builtin.local_model import PREFIX, LocalModelClient, is_available
from bub.builtin.settings import ModelSettings, data_folder
from bub.core.republic_model import RepublicModelClient
from bub.errors import ConfigError

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure-openai": ("AZURE_OPENAI_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "minimax": ("MINIMAX_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "together": ("TOGETHER_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
"""The variables in which the providers that need a key are usually given it."""

_MAYBE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {"grok": ("XAI_API_KEY",), "ollama": ("OLLAMA_API_KEY",)}
"""Those of providers that work without one, too."""


def configured_client(
    settings: ModelSettings, variables: Mapping[str, str] | None = None
) -> RepublicModelClient | LocalModelClient | None:
    """The client for the configured model; the local one when nothing is configured and the extra is there; else None.

    Args:
        settings: What is configured.
        variables: Where the providers' own variables stand instead of the environment.

    Raises:
        ConfigError: The setting names no model that there is, or a setting that goes with it is missing.
    """
    found = os.environ if variables is None else variables
    model = settings.model
    if model is None and not is_available():
        return None
    if model is None or model.startswith(PREFIX) or model == PREFIX.rstrip(":"):
        if settings.fallbacks:
            raise ConfigError("expected BUB_MODEL=provider:model with BUB_FALLBACK_MODELS, got the local model")
        name = "" if model is None else model.partition(":")[2].strip()
        path = Path(name).expanduser() if name else None
        return LocalModelClient(
            path, folder=data_folder(found), max_tokens=settings.max_tokens, timeout=settings.timeout
        )
    for fallback in settings.fallbacks:
        if fallback.startswith(PREFIX):
            raise ConfigError(f"expected provider:model, got {fallback!r} - BUB_FALLBACK_MODELS")
    own = model.partition(":")[0]

    def options(provider: str) -> Mapping[str, Any]:
        return provider_options(settings, provider, is_own=provider == own, variables=found)

    return RepublicModelClient(
        model, fallbacks=settings.fallbacks, max_tokens=settings.max_tokens, provider_options=options
    )


def provider_options(
    settings: ModelSettings, provider: str, *, is_own: bool, variables: Mapping[str, str]
) -> dict[str, Any]:
    """What republic is told about a provider.

    Args:
        settings: What is configured.
        provider: Its name.
        is_own: Whether `BUB_API_KEY` and `BUB_API_BASE` are meant for it; no other provider is sent them.
        variables: The environment.

    Raises:
        ConfigError: It needs a key, and there is none.
    """
    names = _KEYS.get(provider) or _MAYBE_KEYS.get(provider, ())
    prefix = f"REPUBLIC_{provider.upper().replace('-', '_')}"
    key = settings.api_key if is_own else None
    base = settings.api_base if is_own else None
    if key is None and not variables.get(f"{prefix}_API_KEY"):  # which republic reads by itself
        key = next((variables[name] for name in names if variables.get(name)), None)
        if key is None and provider in _KEYS and base is None and not variables.get(f"{prefix}_API_BASE"):
            first = ("BUB_API_KEY", *names) if is_own else names
            raise ConfigError(f"expected a key of {provider}, got none. Set {' or '.join(first)}.")
    options = {"api_key": key, "api_base": base, "timeout": settings.timeout}
    return {name: value for name, value in options.items() if value is not None}
