"""Traces: what can be read, and what is refused by name."""

import math

import pytest

from everstep.cadence.trace import Count, parse_trace
from everstep.errors import UsageError


def test_a_trace_is_a_line_for_each_change():
    """Times count from its first line; comments and empty lines say nothing."""
    trace = parse_trace("# ours\ntime,machines\n100,4\n\n160.5,2\n160.5,3\n300,4\n", name="ours")
    assert trace.counts == (
        Count(at=0, machines=4),
        Count(at=60.5, machines=2),
        Count(at=60.5, machines=3),
        Count(at=200, machines=4),
    )
    assert (trace.ends_s, trace.most, trace.losses) == (200, 4, 2)
    assert trace.machine_s == pytest.approx(4 * 60.5 + 3 * 139.5)
    assert trace.mtbf_s == pytest.approx(trace.machine_s / 2)


def test_units_columns_and_times_of_day_are_understood():
    """Hours, milliseconds, ISO times, either order of the columns, a heading from outside."""
    hours = parse_trace("hours,count\n0,1\n1.5,0\n2,1\n", name="a")
    assert [one.at for one in hours.counts] == [0, 5400, 7200]
    assert parse_trace("machines,milliseconds\n1,0\n2,500\n", name="a").ends_s == 0.5
    day = parse_trace("timestamp,instances\n2021-07-26T18:42:00Z,8\n2021-07-26 18:43:00,9.0\n", name="a")
    assert (day.ends_s, day.most) == (60, 9)
    assert parse_trace("0,1\n60,2\n", name="a", heading="seconds,machines").ends_s == 60


def test_a_trace_without_losses_has_no_mean_life():
    """The end of the recording is no loss."""
    assert parse_trace("time,machines\n0,4\n60,0\n", name="a").mtbf_s == math.inf


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("time,machines\n", "no two rows"),
        ("time,machines\n5,1\n5,2\n", "no two rows"),
        ("time,machines\n0,0\n5,0\n", "never has a machine"),
        ("time,price\n0,1\n5,2\n", "unknown column 'price'"),
        ("0,1\n5,2\n", "unknown column '0'"),
        ("time,hours\n0,1\n5,2\n", "columns time,hours"),
        ("time,machines,zone\n0,1,a\n5,2,a\n", "unknown column 'zone'"),
        ("time,machines\n0,1\n5\n", "line 3: 1 columns"),
        ("time,machines\n0,1\n-5,2\n", "line 3: the time -5 is negative"),
        ("time,machines\n9,1\n5,2\n", "line 3: its time is before"),
        ("time,machines\n0,1\nsoon,2\n", "line 3: 'soon' is no time"),
        ("time,machines\n0,1\nnan,2\n", "line 3: 'nan' is no time"),
        ("time,machines\n0,1\n5,\n", "line 3: '' is no number of machines"),
        ("time,machines\n0,1\n5,1.5\n", "line 3: '1.5' is no number of machines"),
        ("time,machines\n0,1\n5,-1\n", "line 3: '-1' is no number of machines"),
        ("time,machines\n0,1\n5,9999999\n", "line 3: '9999999' is no number of machines"),
        ("time,machines\n0,1\n99999999999,2\n", "a hundred years"),
        ("# every 60s\ntime,machines\n0,1\n60,1\n300,2\n", "line 5: a gap of 240 s"),
        ("# every often\ntime,machines\n0,1\n60,1\n", "says no sampling"),
        ('time,machines\n0,"' + "1" * 200_000 + '"\n', "is not CSV"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(text, named):
    """The trace, the line and the form."""
    with pytest.raises(UsageError, match="the trace ours") as caught:
        parse_trace(text, name="ours")
    assert named in caught.value.message
    assert caught.value.hint


def test_a_hole_in_a_sampled_trace_is_a_gap_and_a_quiet_time_in_one_of_changes_is_none():
    """Where nearly all rows are equally far apart, what is missing was not recorded."""
    sampled = [60 * at for at in range(40) if at not in {20, 21, 22}]
    text = "time,machines\n" + "".join(f"{at},4\n" for at in sampled)
    with pytest.raises(UsageError, match=r"line 22: a gap of 240 s, where the trace was sampled every 60 s"):
        parse_trace(text, name="ours")
    changes = "time,machines\n" + "".join(f"{at * at},{4 + at % 2}\n" for at in range(40)) + "90000,4\n"
    assert parse_trace(changes, name="ours").ends_s == 90000
