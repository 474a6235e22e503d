"""Pruning, bringing back and sweeping on each cloud, by the real command line, with answers that get lost."""

import itertools
import json

import numpy as np

import everstep as es
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_manifest
from everstep.repository.verified import verified
from everstep.repository.verify import verify
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.opening import open_store
from tests.clouds.worlds import everstep
from tests.emulators.proxy import Answer, Lose, Pass


def quiet(_event) -> None:
    """Listens to nothing."""


def test_prune_undelete_and_sweep(cloud, tmp_path):
    """What was pruned comes back within the grace; then it is swept, and the store has lost what it said.

    The first answer to each write and each delete under way is lost, and every fifth list is throttled.
    """
    state = {"frozen": np.random.default_rng(1).standard_normal(20_000), "w": np.zeros(3000)}
    with es.Checkpointer(cloud.url, "digits", listener=quiet) as ckpt:
        for step in (10, 20, 30, 40):
            state["w"][:] = step
            ckpt.save(step, state).wait()
    environ = {**cloud.environ, "EVERSTEP_STORE": cloud.url}

    pruned = everstep(environ, tmp_path, "prune", "digits", "--keep", "last 2", "--yes", "--json")
    assert pruned.returncode == 0, pruned.stderr
    json.loads(pruned.stdout)
    assert everstep(environ, tmp_path, "undelete", "digits@20").returncode == 0
    np.testing.assert_array_equal(np.asarray(es.load(cloud.url, "digits", step=20)["w"]), np.full(3000, 20.0))

    seen, lists = set(), itertools.count(1)

    def script(asked):
        path = asked.path.partition("?")[0]
        if asked.method in {"PUT", "POST", "DELETE"} and (asked.method, path) not in seen:
            seen.add((asked.method, path))
            return Lose()
        if asked.method == "GET" and "list" in asked.path and next(lists) % 5 == 0:
            return Answer(status=503, headers={"Retry-After": "0"})
        return Pass()

    repository = open_repository(open_store(cloud.url), create=False)
    before = {one.key: one.size for one in repository.store.list("")}
    cloud.proxy.script = script
    plan = plan_prune(repository, "digits", parse_keep("last 2"), now=0.0, check="full")
    first = prune(repository, plan, grace_s=0)
    rest = sweep(repository, None, grace_s=0)
    cloud.proxy.forget()
    after = {one.key: one.size for one in repository.store.list("")}
    gone = before.keys() - after.keys()
    assert sorted(one.step for one in first.tombed) == [20]
    assert (first.objects + rest.objects, first.bytes + rest.bytes) == (
        len(gone),
        sum(before[key] for key in gone),
    )
    found = checkpoints(repository, "digits")
    assert [one.step for one in found] == [40, 30]
    assert [verify(repository, one) for one in found] == [[], []]
    assert {key for key in after if key.startswith("packs/")} == {
        key for one in found for key in read_manifest(repository, one).packs
    }
    assert verified(repository, "digits") == {found[0].save}
    assert seen, "writes were asked through the proxy"
