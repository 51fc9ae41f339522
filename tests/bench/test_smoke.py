"""That the benchmarks work: every case gives figures, and no lock had two holders or was lost.

Nothing is said of speed, which a test on a busy machine cannot tell.
"""

import json
import os
import subprocess
import sys

import cases
import pytest
import scenes

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module", name="found")
def run_once(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    done = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), "--smoke", "--out", str(out),
                           "--bin", os.environ["LOCKBROKER_BIN"]],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "table.md").read_text(encoding="utf-8").startswith("# ")
    with open(out / "results.json", encoding="utf-8") as file:
        return json.load(file)


def test_nothing_went_wrong(found):
    assert found["problems"] == []


def test_every_case_is_measured(found):
    assert set(found["cases"]) == {case.name for case in (*cases.LOADS, *scenes.SCENES)}


@pytest.mark.parametrize("case", cases.LOADS, ids=lambda case: case.name)
def test_every_load_has_cycles(found, case):
    peers = found["cases"][case.name]["peers"]
    assert {"lockbroker", case.reference} <= set(peers)
    for figures in peers.values():
        assert figures["cycles"]["least"] > 0
        assert figures["overlaps"]["largest"] == figures["lost"]["largest"] == 0
        assert figures["commands_per_cycle"]["least"] >= 0


@pytest.mark.parametrize("scene", scenes.SCENES, ids=lambda scene: scene.name)
def test_every_scene_has_figures(found, scene):
    peers = found["cases"][scene.name]["peers"]
    assert peers and all(peers.values())
    for label, figures in peers.items():
        assert figures.get("lost", {"largest": 0})["largest"] == 0, label
