"""`bub gateway` as a service: started, talked to over HTTP, stopped, killed, and started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.gateways import Gateways, until


@pytest.fixture
def gateways(tmp_path: Path) -> Gateways:
    return Gateways(tmp_path)


def test_it_answers_and_ends_with_0_when_it_is_terminated(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        assert gateway.answer("ann", gateway.post("ann", "hello")) == "You said: hello"
        gateway.signal(signal.SIGTERM)
        ended = gateway.ended()
    assert (ended.code, ended.out) == (0, "")
    events = [line.split()[1] for line in ended.said.splitlines()]
    assert events == ["web.listening", "channel.disabled", "channel.started", "gateway.running:", "gateway.stopping",
                      "gateway.stopped"]  # fmt: skip
    assert gateways.asked() == ["begin", "hello", "end"]
    assert gateways.status()[0] == 3


def test_turns_that_are_in_progress_at_the_end_may_finish(gateways: Gateways) -> None:
    with gateways.running("--drain", "100") as gateway:
        gateway.post("ann", "wait door")
        gateway.post("ann", "next")
        until(lambda: "wait door" in gateways.asked(), "the turn")
        gateway.signal(signal.SIGTERM)
        gateway.until_said("gateway.stopping")
        assert gateways.status()[1]["phase"] == "stopping"
        gateways.open("door")
        assert gateway.ended().code == 0
    assert gateways.asked() == ["begin", "wait door", "next", "end"]


def test_s84_an_interrupt_ends_it_while_a_tool_runs_in_a_thread(gateways: Gateways) -> None:
    """S84: a thread that nobody can interrupt does not keep the program; the lifespans are left."""
    with gateways.running("--drain", "0") as gateway:
        gateway.post("ann", "stuck for-ever")
        until(lambda: "stuck for-ever" in gateways.asked(), "the turn")
        gateway.signal(signal.SIGINT)
        ended = gateway.ended()
    assert ended.code == 130
    assert ended.said.splitlines()[-1] == "bub: gateway.stopped"
    assert gateways.asked() == ["begin", "stuck for-ever", "end"]


def test_the_second_signal_ends_it_now(gateways: Gateways) -> None:
    with gateways.running("--drain", "1000") as gateway:
        gateway.post("ann", "wait for-ever")
        until(lambda: "wait for-ever" in gateways.asked(), "the turn")
        gateway.signal(signal.SIGINT)
        gateway.until_said("gateway.stopping")
        gateway.signal(signal.SIGINT)
        ended = gateway.ended()
    assert ended.code == 130
    assert "bub: gateway.hurrying: turns are cancelled\n" in ended.said


def test_s66_messages_that_wait_survive_a_kill(gateways: Gateways) -> None:
    """S66: what was accepted is run by the next gateway, each message once and in order; first what was in progress."""
    with gateways.running() as gateway:
        gateway.post("ann", "wait for-ever")
        until(lambda: "wait for-ever" in gateways.asked(), "the turn")
        for content in ("one", "two"):
            gateway.post("ann", content, action="steer")
        until(lambda: gateways.status()[1]["work"]["steering_messages"] == 2, "the status")
        gateway.signal(signal.SIGKILL)
        assert gateway.ended().code == -signal.SIGKILL
    before = len(gateways.asked())
    code, status = gateways.status()
    assert (code, status["running"], status["pid"]) == (3, False, gateway.process.pid)
    gateways.open("for-ever")
    with gateways.running() as gateway:
        until(lambda: "two" in gateways.asked(), "the messages that wait")
        gateway.signal(signal.SIGTERM)
        assert gateway.ended().code == 0
    asked = gateways.asked()[before:]
    assert asked == ["begin", "wait for-ever", "one", "two", "end"]


def test_another_command_beside_it_takes_nothing_from_it(gateways: Gateways) -> None:
    """`bub run` in the session of a busy gateway has an inbox of its own."""
    with gateways.running() as gateway:
        receipt = gateway.post("ann", "wait door")
        until(lambda: "wait door" in gateways.asked(), "the turn")
        gateway.post("ann", "mine", action="steer")
        until(lambda: gateways.status()[1]["work"]["steering_messages"] == 1, "the status")
        other = gateways.beside("run", "hello", "--session-id", "ann")
        assert other.code == 0
        gateways.open("door")
        assert gateway.answer("ann", receipt) == "You said: wait door"
        until(lambda: "mine" in gateways.asked(), "the message")
    assert gateways.asked().count("mine") == 1


def test_a_turn_takes_what_steers_it(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        receipt = gateway.post("ann", "take")
        until(lambda: "take" in gateways.asked(), "the turn")
        gateway.post("ann", "to the left", action="steer")
        assert gateway.answer("ann", receipt) == "taken: to the left"


def test_two_gateways_on_one_data_folder(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        second = gateways.run()
        assert second.code == 1
        assert f"another gateway, pid {gateway.process.pid}, since " in second.said
        assert second.said.count("\n") == 1
        with gateways.running(BUB_HOME=str(gateways.folder / "other")) as other:
            assert other.answer("ann", other.post("ann", "hello")) == "You said: hello"
        assert gateway.answer("ann", gateway.post("ann", "hello")) == "You said: hello"


def test_the_status_of_one_that_runs(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        gateway.post("ann", "wait door")
        gateway.post("ann", "next")
        expected = {"busy_sessions": 1, "queued_sessions": 1, "waiting_messages": 1, "steering_messages": 0}
        until(lambda: gateways.status()[1]["work"] == expected, "the status")
        code, status = gateways.status()
        assert (code, status["running"], status["phase"], status["pid"]) == (0, True, "running", gateway.process.pid)
        assert status["channels"] == [
            {"name": "telegram", "state": "disabled", "reason": "BUB_TELEGRAM_TOKEN is not set"},
            {"name": "web", "state": "running", "reason": ""},
        ]
        text = gateways.run("status")
        assert text.code == 0
        assert text.out.startswith(f"running: pid {gateway.process.pid}, since ")
        assert "  telegram  disabled: BUB_TELEGRAM_TOKEN is not set\n  web       running\n" in text.out


def test_a_channel_that_fails_does_not_keep_the_others(gateways: Gateways) -> None:
    with gateways.running(BUB_TELEGRAM_TOKEN="1:token") as gateway:
        (line,) = [line for line in gateway.said if "channel.failed" in line]
        assert line.startswith("bub: channel.failed telegram: expected users or chats that may write to the bot")
        assert gateway.answer("ann", gateway.post("ann", "hello")) == "You said: hello"


def test_no_channel_can_start(gateways: Gateways) -> None:
    ended = gateways.run(BUB_WEB_PORT="none")
    assert ended.code == 1
    assert "bub: channel.failed web: expected a port from 0 to 65535, got 'none' - BUB_WEB_PORT\n" in ended.said
    assert "bub: gateway.no_channel: no channel could start. Set " in ended.said
    assert gateways.status()[0] == 3


def test_a_failing_turn_is_one_line_and_a_traceback_with_debug(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        gateway.post("ann", "fail the-door")
        assert gateway.until_said("gateway.turn_failed") == "bub: gateway.turn_failed ann: the-door\n"


def test_a_tool_that_blocks_the_event_loop_does_not_keep_the_second_signal(gateways: Gateways) -> None:
    with gateways.running() as gateway:
        gateway.post("ann", "block for-ever")
        until(lambda: "block for-ever" in gateways.asked(), "the turn")
        gateway.signal(signal.SIGTERM)
        gateway.signal(signal.SIGINT)
        assert gateway.ended().code in (130, 143)
