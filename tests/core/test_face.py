"""`bub.core` hands names on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bub.core
from bub.bus import EventBus
from bub.core import events, tools
from bub.tape.tape import Tape


def test_every_name_is_handed_on() -> None:
    for name in bub.core.__all__:
        assert getattr(bub.core, name).__name__ == name
        assert name in dir(bub.core)
    assert bub.core.ToolCall is events.ToolCall
    assert bub.core.Tool is tools.Tool
    assert bub.core.EventBus is EventBus
    assert bub.core.Tape is Tape


def test_every_event_and_payload_is_among_them() -> None:
    own = {
        name
        for name, value in vars(events).items()
        if isinstance(value, type) and value.__module__ == events.__name__ and not name.startswith("_")
    }
    assert own <= set(bub.core.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'bub\.core' has no attribute 'Agnt'$"):
        getattr(bub.core, "Agnt")  # noqa: B009 - a type checker would refuse the name


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = "import sys, bub.core; sys.exit(any(name.startswith('bub.core.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
