"""How many instructions the hot paths take, within a few percent of what instructions.toml says.

Unlike a time, a count of instructions is the same in every run on every machine, so that a path
that grew is seen in the change that made it grow. After a change on purpose, write the new figures
with `INSTRUCTIONS_UPDATE=1` and look at the difference: the file holds what was counted with the
compiler that it names; with another one the counts are shown and not judged.
"""

import os
import re
import subprocess
import tomllib

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
FIGURES = os.path.join(HERE, "instructions.toml")
PATHS = ("acquire", "release", "renew", "parse", "write")
ROUNDS = 1000  # of paths.c: how often each path runs, or how many locks are renewed
TOLERANCE = 0.05

pytestmark = pytest.mark.skipif(os.environ.get("INSTRUCTIONS_COUNTED") != "YES",
                                reason="only what gcc makes of a release build is counted")


def compiler():
    return subprocess.run(["gcc", "-dumpfullversion", "-dumpmachine"], check=True,
                          capture_output=True, text=True).stdout.replace("\n", " ").strip()


def figures():
    with open(FIGURES, "rb") as file:
        return tomllib.load(file)


def count(path, tmp_path):
    """Instructions of one round of the path, by callgrind."""
    program = os.path.join(os.environ["LOCKBROKER_BIN"], "bench_paths")
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp_path}/out",
         "--collect-atstart=no", f"--toggle-collect=path_{path}*", program, path],
        capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    total = int(re.search(r"Collected : (\d+)", run.stderr)[1])
    assert total > 0, run.stderr
    return total // ROUNDS


def write(counts):
    with open(FIGURES, "w", encoding="utf-8") as file:
        file.write("# Instructions a round of each path of paths.c; see test_instructions.py.\n"
                   f'compiler = "{compiler()}"\n\n[counts]\n')
        file.writelines(f"{path} = {number}\n" for path, number in counts.items())


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    counts = {path: count(path, tmp_path_factory.mktemp(path)) for path in PATHS}
    print("\n" + ", ".join(f"{path} {number}" for path, number in counts.items()))
    if os.environ.get("INSTRUCTIONS_UPDATE"):
        write(counts)
    return counts


@pytest.mark.parametrize("path", PATHS)
def test_as_many_as_before(counted, path):
    known = figures()
    if known["compiler"] != compiler():
        pytest.skip(f"counted with {known['compiler']}, this is {compiler()}")
    wanted = known["counts"][path]
    assert abs(counted[path] - wanted) <= TOLERANCE * wanted, \
        f"{path}: {counted[path]} instructions, {wanted} in instructions.toml"
