"""Progress: lines in a log, bars on a terminal, and neither on stdout."""

import io

import pytest

from everstep.cli.progress import Bar, Lines, progress
from everstep.events import FellBack, Retried, SaveCommitted, Transferred


class Clock:
    """A time that the test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_log_gets_a_line_now_and_then():
    """At the beginning, every ten seconds, and at the end."""
    told, clock = [], Clock()
    with Lines(told.append, clock=clock) as listener:
        for second in range(25):
            clock.now = float(second)
            listener(Transferred(what="upload", done=second * 10**6, total=24 * 10**6))
    assert told == [
        "upload: 0 B of 24 MB (0 %)",
        "upload: 10 MB of 24 MB (41 %)",
        "upload: 20 MB of 24 MB (83 %)",
        "upload: 24 MB of 24 MB (100 %)",
    ]


def test_trouble_is_always_told():
    """Also with --quiet: a retry, and a damaged checkpoint that was passed over."""
    told = []
    with Lines(told.append, moves=False) as listener:
        listener(Transferred(what="upload", done=1, total=2))
        listener(Retried(verb="get", key="k", error="503", wait_s=1.5))
        listener(FellBack(run="r", damaged_step=20, to_step=10, error="another digest"))
        listener(SaveCommitted(run="r", step=1, bytes=1, stored_bytes=1, durable_s=1.0))
    assert told == [
        "get k failed (503); again in 1.5 s",
        "WARNING: step 20 of r is damaged (another digest); fell back to step 10",
    ]


def test_a_terminal_gets_bars_that_go_away():
    """Words stand above the bar; names with markup are shown as they are."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    with Bar(screen) as listener:
        listener(Transferred(what="copy [red]r@1", done=5 * 10**6, total=10**7))
        listener(Retried(verb="get", key="k[bold]", error="503", wait_s=1.5))
    shown = screen.getvalue()
    assert "get k[bold] failed (503); again in 1.5 s" in shown
    assert "copy [red]r@1" in shown


def test_an_empty_transfer_has_no_share():
    """Nothing to move is no division by zero."""
    told = []
    with Lines(told.append) as listener:
        listener(Transferred(what="upload", done=0, total=0))
    assert told == ["upload: 0 B of 0 B"]


@pytest.mark.parametrize(("setting", "kind"), [("always", Bar), ("auto", Lines), ("never", Lines)])
def test_the_settings_choose(setting, kind, monkeypatch):
    """EVERSTEP_SHOW_PROGRESS: bars, what fits, or trouble only."""
    monkeypatch.setenv("EVERSTEP_SHOW_PROGRESS", setting)
    assert type(progress()) is kind
    with progress(quiet=True) as listener:
        listener(Transferred(what="nothing is shown", done=0, total=1))
