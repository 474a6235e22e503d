"""The servers that other tests rely on do what those tests rely on."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore, S3Store

ROOT = Path(__file__).parents[2]
HTTP = {"allow_http": True}


def _azure(server):
    return AzureStore(
        server.container(),
        account_name=server.account,
        account_key=server.key,
        endpoint=server.endpoint,
        client_options=HTTP,
    )


def _s3(server):
    return S3Store(
        server.bucket(),
        endpoint=server.endpoint,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        client_options=HTTP,
    )


def _gcs(server):
    return GCSStore(server.bucket(), service_account_key=server.service_account_key, client_options=HTTP)


@pytest.fixture(params=["azurite", "moto_server", "gcs_server"])
def cloud(request):
    """An empty container of each server that keeps conditions."""
    opening = {"azurite": _azure, "moto_server": _s3, "gcs_server": _gcs}
    return opening[request.param](request.getfixturevalue(request.param))


def test_of_creates_at_once_exactly_one_wins(cloud):
    """Eight creates of one key at the same time: one succeeds, seven are told, and the winner's bytes stay."""
    for turn in range(5):
        won = []
        start = threading.Barrier(8)

        def create(who, key=f"race/{turn}", won=won, start=start):
            start.wait()
            try:
                cloud.put(key, b"%d" % who * 1000, mode="create")
            except AlreadyExistsError:
                return
            won.append(who)

        threads = [threading.Thread(target=create, args=(who,)) for who in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(won) == 1
        assert bytes(cloud.get(f"race/{turn}").bytes()) == b"%d" % won[0] * 1000


def test_lists_are_whole_and_sorted(cloud):
    """More keys than fit a small page, awkward characters among them: listed each once, in order."""
    keys = sorted([f"some/{n:03d}" for n in range(120)] + ["some", "with ~=&%+.json"])
    for key in keys:
        cloud.put(key, b"x", use_multipart=False)
    assert [each["path"] for page in cloud.list(chunk_size=50) for each in page] == keys


@pytest.mark.parametrize(("opening", "server"), [(_s3, "moto_server"), (_gcs, "gcs_server")])
def test_lists_continue_after_a_key(opening, server, request):
    """A list that begins after a key starts with the next one. Azurite knows no such list: it begins anew."""
    store = opening(request.getfixturevalue(server))
    keys = [f"some/{n:03d}" for n in range(120)]
    for key in keys:
        store.put(key, b"x", use_multipart=False)
    assert [each["path"] for page in store.list(offset="some/099") for each in page] == keys[100:]


def test_ranges_are_exact(cloud):
    """A range comes back as asked, of an object of some size."""
    content = os.urandom(3 << 20)
    cloud.put("one", content, use_multipart=False)
    assert bytes(cloud.get_range("one", start=1_000_001, length=777)) == content[1_000_001:1_000_778]


def test_the_careless_server_overwrites(careless_s3):
    """What makes it fit for tests of refusal: a second create of a key succeeds, and replaces the first."""
    store = _s3(careless_s3)
    store.put("key", b"first", mode="create")
    store.put("key", b"second", mode="create")
    assert bytes(store.get("key").bytes()) == b"second"


def test_a_test_run_that_is_killed_leaves_no_server(tmp_path):
    """Servers end with the run that started them, though it was killed and could not end them."""
    script = (
        "from tests.emulators.fleet import Fleet\n"
        "import sys, time\n"
        "fleet = Fleet()\n"
        "for name in ('azurite', 'moto', 'gcs', 'careless'): fleet.port(name)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        servers = psutil.Process(run.pid).children(recursive=True)
        assert len(servers) == 5  # the front of fake-gcs-server, and itself
        run.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(servers, timeout=30)
    assert not alive, [each.cmdline() for each in alive]
    assert len(gone) == 5
