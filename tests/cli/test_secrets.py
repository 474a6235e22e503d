"""Fault 30: a secret in the settings is in no output of any command."""

import pytest

from tests.cli.worlds import shell, trained

CANARY = "c4n4ry+5ecret/AAAA=="
ENVIRON = {
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=team;AccountKey={CANARY};BlobEndpoint=http://127.0.0.1:9/team",
    "AZURE_STORAGE_KEY": CANARY,
    "AZURE_STORAGE_SAS_TOKEN": f"?sv=1&sig={CANARY}",
    "AWS_ACCESS_KEY_ID": "team",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "AWS_SESSION_TOKEN": CANARY,
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "GOOGLE_OAUTH_ACCESS_TOKEN": CANARY,
    "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
    "COLUMNS": "500",
}


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("url", ["az://box/x", "s3://box/x", "gs://box/x"])
def test_an_unreachable_cloud_tells_no_secret(url, as_json, tmp_path):
    """Errors name keys and hosts, never what signs requests."""
    answer = shell("doctor", "--probe-mb", "1", *as_json, "--store", url, env=ENVIRON, cwd=tmp_path)
    assert answer.code in {1, 4, 5}, answer.err
    assert "Traceback" not in answer.err
    assert "c4n4ry" not in answer.out + answer.err


@pytest.mark.parametrize(
    "url",
    [
        f"https://team.blob.core.windows.net/box?sig={CANARY}",
        f"s3://team:{CANARY}@box/x",
        f"az://box/x?sig={CANARY}",
        f"AccountName=team;AccountKey={CANARY}",
    ],
)
@pytest.mark.parametrize("verb", ["ls", "doctor"])
def test_a_secret_in_an_address_is_not_repeated(url, verb, tmp_path):
    """People paste what they have; the refusal does not put it into logs."""
    answer = shell(verb, "--json", "--store", url, cwd=tmp_path)
    assert answer.code != 0
    assert "5ecret" not in answer.out + answer.err


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "digits"], ["verify"], ["diff", "digits", "digits"], ["tag"]]
)
def test_commands_on_a_local_store_tell_no_secret(words, tmp_path):
    """Nor does anything else show the environment."""
    store = trained(tmp_path / "store", steps=(10,))
    for form in ([], ["--json"]):
        answer = shell(*words, *form, "--store", store, env=ENVIRON, cwd=tmp_path)
        assert answer.code == 0, answer.err
        assert "c4n4ry" not in answer.out + answer.err
