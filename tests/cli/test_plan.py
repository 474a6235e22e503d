"""plan: from words to a recommended pair, and each wrong word refused by name."""

import itertools

import numpy as np
import pytest

import everstep as es
from tests.cli.worlds import ask, shell, trained

ISSUE = (
    "plan", "--state", "15GB", "--stall", "2s", "--bandwidth", "1GB/s", "--mtbf", "4h", "--notice", "120s",
    "--restart", "3m", "--prices", "azure-hot", "--keep", "last 3",
)  # fmt: skip
QUICK = ("--horizon", "1d")


def test_a_plan_recommends_an_interval_with_its_goodput(capsys):
    """One document: a row for each interval, the recommended among them, and where each figure is from."""
    answer = ask(capsys, *ISSUE, "--json")
    assert answer.code == 0
    best = answer.json["recommended"]
    assert best["interval_s"] == pytest.approx(700, abs=60)
    assert best["goodput"] == pytest.approx(0.977, abs=0.002)
    assert best["keep"] == "last 3"
    assert best["kept"] == 3
    rows = answer.json["rows"]
    assert len({row["interval_s"] for row in rows}) == len(rows) > 5
    assert [row["interval_s"] for row in rows if row["recommended"]] == [best["interval_s"]]
    assert best["goodput"] == max(row["goodput"] for row in rows)
    assert answer.json["prices"]["as_of"] == "2026-09-01"
    origins = {one["name"]: one["from"] for one in answer.json["assumed"]}
    assert origins["state"] == "given"
    assert origins["slowdown"] == "default"


def test_people_get_the_figures_a_table_the_pair_and_a_chart(capsys):
    """Each retention stands in a row, defaults are said to be some, and no file is needed."""
    answer = ask(capsys, *ISSUE, "--keep", "hourly 24, daily 7", "--machine-price", "2.5", *QUICK)
    assert answer.code == 0
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert any(line.split() == ["slowdown", "8%", "default"] for line in lines)
    assert "a save is durable after 17 s and costs training 3.11 s" in answer.out
    assert "prices: azure-hot as of 2026-09-01 (East US); unconfirmed: list_1k" in answer.out
    marked = [line for line in lines if line.startswith("*")]
    assert len(marked) == 2  # in the table and in the chart
    assert marked[0].endswith("$2.56")
    assert 'recommended: every="' in answer.out
    assert 'keep="last 3"' in answer.out
    assert "x work lost and done again" in answer.out


def test_intervals_and_prices_of_ones_own_count(capsys, tmp_path):
    """A file, changes on top of it, and an interval that nobody else would compare."""
    (tmp_path / "ours.toml").write_text('base = "s3-standard"\ngb_month = 0.5\n')
    words = (
        "plan",
        "--state",
        "1GB",
        "--every",
        "777s",
        "--prices",
        tmp_path / "ours.toml",
        "--json",
        *QUICK,
    )
    plain = ask(capsys, *words).json
    doubled = ask(capsys, *words, "--price", "gb_month=1.0").json
    [one] = [row for row in plain["rows"] if row["interval_s"] == 777]
    [two] = [row for row in doubled["rows"] if row["interval_s"] == 777]
    assert two["storage_per_month"] == pytest.approx(2 * one["storage_per_month"])
    assert one["storage_per_month"] == pytest.approx(4e9 / 2**30 * 0.5)


def test_a_recorded_trace_and_a_file_are_played(capsys, tmp_path):
    """Bursts of real machines; a file of ours in the same form."""
    recorded = ask(
        capsys, "plan", "--state", "15GB", "--trace", "bamboo-p2", "--machines", "8", "--json", *QUICK
    )
    assert "bamboo-p2" in recorded.json["method"]
    assert recorded.json["mtbf_s"] == pytest.approx(7.81 * 3600 / 8, rel=0.01)
    own = tmp_path / "ours.csv"
    own.write_text("time,machines\n0,4\n3600,3\n3700,4\n90000,4\n")
    assert ask(capsys, "plan", "--state", "1GB", "--trace", own, "--json", *QUICK).code == 0
    bursts = ask(capsys, "plan", "--state", "1GB", "--failures", "weibull", "--json", *QUICK)
    assert "Weibull" in bursts.json["method"]


def test_a_run_is_measured(capsys, tmp_path):
    """Its size, its share of new bytes, its own retention and its failures; what is given counts more."""
    store = str(tmp_path / "store")
    frozen = np.random.default_rng(0).standard_normal(2**20)
    for _ in range(2):
        state = {"frozen": frozen, "head": np.zeros(2**18)}
        with es.Checkpointer(store, "digits", every=["1 step", "auto"], keep="last 7") as ckpt:
            for step in itertools.islice(ckpt.loop(state, until=50), 4):
                state["head"] += step
                ckpt.wait()
    words = ("plan", "--store", store, "--run", "digits", "--restart", "1m", "--json")
    answer = ask(capsys, *words)
    assert answer.code == 0
    found = {one["name"]: one for one in answer.json["assumed"]}
    for name in ("state", "changed", "stall", "bandwidth"):
        assert found[name]["from"] == "measured: run digits"
    assert found["mtbf"]["from"].startswith("measured: run digits, 1 interruptions in")
    assert found["restart"]["from"] == "given"
    assert answer.json["recommended"]["keep"] == "last 7"
    two = {one["name"]: one for one in ask(capsys, *words, "--machines", "2").json["assumed"]}
    assert two["mtbf"]["value"] == pytest.approx(2 * found["mtbf"]["value"])
    assert two["bandwidth"]["value"] == pytest.approx(found["bandwidth"]["value"] / 2)


def test_a_store_is_probed_for_its_bandwidth_and_left_as_it_was(capsys, tmp_path):
    """Only when nobody says it; the words go to stderr."""
    store = trained(tmp_path / "store", steps=(10,))
    before = sorted((tmp_path / "store").rglob("*"))
    answer = ask(capsys, "plan", "--state", "1GB", "--store", store, "--json", *QUICK)
    assert answer.code == 0
    [bandwidth] = [one for one in answer.json["assumed"] if one["name"] == "bandwidth"]
    assert "a probe of 32 MB" in bandwidth["from"]
    assert "measuring the bandwidth" in answer.err
    assert sorted((tmp_path / "store").rglob("*")) == before


def test_a_chart_is_written(capsys, tmp_path):
    """SVG or PNG, by the name."""
    chart = tmp_path / "plan.svg"
    assert ask(capsys, *ISSUE, "--chart", chart, *QUICK).code == 0
    assert "<svg" in chart.read_text()


def test_the_same_words_have_the_same_answer():
    """In processes of their own, simulated too."""
    words = ("plan", "--state", "1GB", "--trace", "bamboo-g4dn", "--machines", "4", "--json", *QUICK)
    assert shell(*words).out == shell(*words).out


@pytest.mark.parametrize(
    ("words", "named", "form"),
    [
        ((), "nothing says --state", "--run RUN"),
        (("--state", "-5GB"), "--state -5GB", "15GB"),
        (("--state", "15"), None, None),
        (("--state", "1GB", "--stall", "soon"), "--stall soon", "30s"),
        (("--state", "1GB", "--mtbf", "0s"), "--mtbf 0s is less than 1", "2h"),
        (("--state", "1GB", "--restart", "-3m"), "--restart -3m", "30s"),
        (("--state", "1GB", "--bandwidth", "1GB"), "--bandwidth 1GB", "1GB/s"),
        (("--state", "1GB", "--changed", "1.4"), "--changed 1.4 is more than 1", "40%"),
        (("--state", "1GB", "--overhead", "90%"), "--overhead 90% is more than 0.5", "20%"),
        (("--state", "1GB", "--notice-chance", "0.5"), "--notice-chance without --notice", "--notice 120s"),
        (("--state", "1GB", "--machines", "0"), "--machines 0 is less than 1", "from 1"),
        (("--state", "1GB", "--machine-price", "-1"), "--machine-price -1", "from 0"),
        (("--state", "1GB", "--keep", "lastt 3"), "lastt", "last 3"),
        (("--state", "1GB", "--keep", "best 2 by loveliness"), "loveliness", "max"),
        (("--state", "15GB", "--every", "1s"), "an interval of 1 s is shorter", "or more"),
        (("--state", "1GB", "--prices", "azur-hot"), "azur-hot", "azure-hot"),
        (("--state", "1GB", "--price", "gb=1"), "--price gb=1", "gb_month=0.02"),
        (("--state", "1GB", "--trace", "bambo"), "there is no trace bambo", "bamboo-p2"),
        (("--state", "1GB", "--trace", "bamboo-p2", "--mtbf", "4h"), "--trace tells when", "one of them"),
        (
            ("--state", "1GB", "--trace", "bamboo-p2", "--machines", "99"),
            "never has 99 machines",
            "--machines",
        ),
        (("--state", "1GB", "--failures", "often"), "often", "exponential"),
        (("--state", "1GB", "--chart", "plan.pdf"), "plan.pdf", ".svg"),
        (("--state", "1GB", "--run", "none"), "no store is named", "--store"),
    ],
)
def test_what_cannot_be_is_refused_by_name_with_the_form(capsys, tmp_path, monkeypatch, words, named, form):
    """Exit 2, and nothing on stdout; a size without a unit is bytes."""
    monkeypatch.chdir(tmp_path)
    answer = ask(capsys, "plan", *words, *QUICK)
    if named is None:
        assert answer.code == 0
        return
    assert answer.code == 2
    assert answer.out == ""
    assert named in answer.err
    assert form in answer.err
