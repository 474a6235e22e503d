"""Charts: for a terminal, and as a file."""

import sys

import pytest

from everstep.errors import UsageError
from everstep.planner.answer import answer
from everstep.planner.bars import bars
from everstep.planner.plot import check_chart, draw
from everstep.retention.policy import parse_keep
from tests.planner.worlds import asked


@pytest.fixture(scope="module")
def found():
    """An answer of two retentions."""
    return answer(asked(keeps=(parse_keep("last 3"), parse_keep("all")), horizon_s=86400.0))


def test_bars_are_as_long_as_the_time_that_brings_nothing(found):
    """One for each interval, in parts, the worst as wide as there is room; the recommended one is marked."""
    lines = bars(found.rows, recommended=found.recommended, width=40)
    rows = found.rows[::2]
    assert len(lines) == 2 + len(rows)
    drawn = [line.split("|")[1].split(" ")[0] for line in lines[2:]]
    worst = max(1 - row.brings.goodput for row in rows)
    assert max(map(len, drawn)) == 40
    for text, row in zip(drawn, rows, strict=True):
        assert len(text) == round((1 - row.brings.goodput) / worst * 40)
        assert text == "s" * text.count("s") + "x" * text.count("x") + "r" * text.count("r")
    assert drawn[0].count("s") > drawn[-1].count("s")
    assert drawn[0].count("x") < drawn[-1].count("x")
    marked = [row.interval_s for line, row in zip(lines[2:], rows, strict=True) if line.startswith("*")]
    assert marked == [found.recommended.interval_s]


def test_a_chart_is_drawn_as_svg_or_png(found, tmp_path):
    """The same answer makes the same SVG."""
    draw(found, tmp_path / "plan.svg")
    draw(found, tmp_path / "again.SVG")
    draw(found, tmp_path / "plan.png")
    text = (tmp_path / "plan.svg").read_text()
    assert text == (tmp_path / "again.SVG").read_text()
    assert "<svg" in text
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "named"), [("plan.pdf", "ends in .svg or .png"), ("none/plan.svg", "no folder")]
)
def test_a_chart_that_cannot_be_is_refused(name, named, tmp_path):
    """By its name, before anything is reckoned."""
    with pytest.raises(UsageError, match=named):
        check_chart(tmp_path / name)


def test_without_matplotlib_is_said_how_to_get_it(tmp_path, monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="matplotlib") as caught:
        check_chart(tmp_path / "plan.svg")
    assert 'pip install "everstep[plot]"' in caught.value.hint
