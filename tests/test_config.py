"""Settings come from the first place that has them, and never show a secret."""

import pickle
import re
from pathlib import Path

import pytest

from everstep.config import Secret, no_color, process_settings, settings
from everstep.errors import UsageError

CANARY = "canary-4f1d"


def test_a_flag_beats_a_variable_beats_the_project_beats_the_user_beats_the_default(tmp_path):
    """Each place is asked only when the ones before it say nothing."""
    user = tmp_path / "xdg" / "everstep"
    user.mkdir(parents=True)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert settings(environ=environ, folder=tmp_path).workers == 4
    (user / "config.toml").write_text("workers = 5\nstore = 'memory://user'\n")
    assert settings(environ=environ, folder=tmp_path).workers == 5
    (tmp_path / "pyproject.toml").write_text("[tool.everstep]\nworkers = 6\n")
    assert settings(environ=environ, folder=tmp_path).workers == 6
    (tmp_path / "everstep.toml").write_text("workers = 7\n")
    assert settings(environ=environ, folder=tmp_path).workers == 7
    environ["EVERSTEP_WORKERS"] = "8"
    assert settings(environ=environ, folder=tmp_path).workers == 8
    assert settings(environ=environ, folder=tmp_path, workers=9).workers == 9
    assert settings(environ=environ, folder=tmp_path, workers=None).store == "memory://user"


@pytest.mark.parametrize(
    ("text", "named", "allowed"),
    [
        ("worker = 3", "worker", "workers"),
        ("workers = 'many'", "workers", "whole number"),
        ("workers = true", "workers", "whole number"),
        ("budget_bytes = '3 parsecs'", "budget_bytes", "256MiB"),
        ("on_corrupt = 'ignore'", "on_corrupt", "previous or fail"),
        ("[s3]\nregoin = 'x'", "s3.regoin", "region"),
        ("s3 = 3", "s3", "a table"),
        ("[azure]\naccount = 3", "azure.account", "a text"),
    ],
)
def test_a_wrong_key_or_value_names_the_file_the_key_and_what_is_allowed(tmp_path, text, named, allowed):
    """A typing mistake in a file is an error that tells where it is and what would be right."""
    file = tmp_path / "everstep.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        settings(environ={}, folder=tmp_path)
    assert str(file) in str(caught.value)
    assert named in str(caught.value)
    assert allowed in str(caught.value)


def test_a_wrong_variable_is_named_without_its_value():
    """The value may be a secret that was put into the wrong variable."""
    with pytest.raises(UsageError) as caught:
        settings(environ={"EVERSTEP_WORKERS": CANARY})
    assert "EVERSTEP_WORKERS" in str(caught.value)
    assert CANARY not in repr(caught.value) + str(caught.value) + str(caught.value.fields)


def test_a_secret_shows_nowhere_and_does_not_leave_the_process():
    """Not by repr, str, formatting or pickling, alone or inside the settings."""
    chosen = settings(environ={"AZURE_STORAGE_KEY": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY})
    assert chosen.stores.azure.key.reveal() == CANARY
    assert CANARY not in f"{chosen!r} {chosen} {chosen.stores.s3.secret_access_key!s:>30}"
    with pytest.raises(TypeError, match="does not leave"):
        pickle.dumps(chosen.stores.azure.key)
    assert Secret("a") == Secret("a") != Secret("b")


def test_a_secret_in_a_shared_file_is_refused_and_in_the_users_own_taken(tmp_path):
    """Project files are committed; the user's file is not."""
    (tmp_path / "everstep.toml").write_text(f"[azure]\nkey = '{CANARY}'\n")
    with pytest.raises(UsageError, match="AZURE_STORAGE_KEY") as caught:
        settings(environ={}, folder=tmp_path)
    assert CANARY not in str(caught.value)
    (tmp_path / "everstep").mkdir()
    (tmp_path / "everstep.toml").rename(tmp_path / "everstep" / "config.toml")
    chosen = settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path / "everstep")
    assert chosen.stores.azure.key == Secret(CANARY)


def test_the_first_of_a_clouds_variables_wins_and_is_remembered_by_name():
    """Errors about access name the variable that was used."""
    azure = settings(environ={"AZURE_STORAGE_ACCOUNT": "b", "AZURE_STORAGE_ACCOUNT_NAME": "a"}).stores.azure
    assert azure.account == "a"
    assert azure.sources == {"account": "AZURE_STORAGE_ACCOUNT_NAME"}


def test_a_proxys_address_is_not_kept_only_its_variable():
    """Proxy addresses hold passwords."""
    chosen = settings(environ={"https_proxy": f"http://u:{CANARY}@proxy", "HTTP_PROXY": ""})
    assert chosen.stores.proxies == ("https_proxy",)
    assert CANARY not in repr(chosen)


@pytest.mark.parametrize("size", ["1.5GiB", "1610612736", "1536 MiB"])
def test_sizes_have_units(size):
    """A size is a number of bytes, or a number with a unit."""
    assert settings(environ={"EVERSTEP_BUDGET_BYTES": size}).budget_bytes == 3 * 2**29


def test_the_launchers_words_reach_the_process():
    """Attempt, drill and ranks come from the environment, once, typed."""
    told = process_settings(
        {
            "EVERSTEP_ATTEMPT": "3",
            "EVERSTEP_PROGRESS": "/p",
            "RANK": "1",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "2",
        }
    )
    assert (told.attempt, told.progress, told.rank, told.local_rank, told.world_size) == (
        3,
        Path("/p"),
        1,
        1,
        2,
    )
    assert process_settings({}).world_size is None
    with pytest.raises(UsageError, match="EVERSTEP_ATTEMPT"):
        process_settings({"EVERSTEP_ATTEMPT": "x"})
    with pytest.raises(UsageError, match="RANK"):
        process_settings({"RANK": "two"})
    with pytest.raises(UsageError, match="WORLD_SIZE"):
        process_settings({"RANK": "2", "WORLD_SIZE": "2"})


def test_colour_is_off_when_asked():
    """NO_COLOR with any value, or a dumb terminal."""
    assert no_color({"NO_COLOR": "1"})
    assert no_color({"TERM": "dumb"})
    assert not no_color({"TERM": "xterm", "NO_COLOR": ""})


def test_nothing_else_in_the_package_reads_the_environment():
    """One file reads the environment, so that one test can say what it reads."""
    package = Path(__file__).parent.parent / "src" / "everstep"
    reading = re.compile(r"\b(os\.environ\b(?!\s*\|)|os\.getenv|from os import .*(environ|getenv)|environb)")
    found = [
        f"{file.relative_to(package)}:{number}: {line.strip()}"
        for file in package.rglob("*.py")
        if file != package / "config" / "reading.py"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if reading.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 15.0), ("0", 0.0), ("5", 5.0), ("2m", 120.0), ("0s", 0.0)]
)
def test_how_often_a_training_looks_for_requests(text, seconds):
    """A number of seconds or a duration; 0 is never."""
    assert settings(environ={"EVERSTEP_WATCH": text}).watch == seconds


@pytest.mark.parametrize("name", ["EVERSTEP_WATCH", "EVERSTEP_SAVE_SIGNAL"])
def test_a_signal_or_rhythm_that_cannot_be_is_refused(name):
    """SIGTERM stops a training: it cannot ask for a save too."""
    with pytest.raises(UsageError, match=name) as caught:
        settings(environ={name: "SIGTERM"})
    assert ("SIGUSR2" if "SIGNAL" in name else "0 for never") in caught.value.hint
    assert settings(environ={"EVERSTEP_SAVE_SIGNAL": "none"}).save_signal == "none"
