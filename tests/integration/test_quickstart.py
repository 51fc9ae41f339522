"""quickstart.sh in a copy of the repository, where the packages that it needs are there already."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from lockbroker import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILD = 600  # seconds


def missing_packages():
    text = (ROOT / "quickstart.sh").read_text(encoding="utf-8")
    packages = re.search(r'^PACKAGES="([^"]*)"', text, re.MULTILINE)[1].split()
    assert len(packages) > 10
    return [package for package in packages if subprocess.run(
        ["dpkg-query", "-W", package], check=False, capture_output=True).returncode]


@pytest.fixture(scope="module")
def script():
    """Built once: the programs under test here are those of the release preset."""
    if not shutil.which("dpkg-query") or missing_packages():
        pytest.skip("it would install packages")
    with tempfile.TemporaryDirectory(prefix="lb-") as folder:
        copy = Path(folder, "a copy")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "build*", "__pycache__"))
        script = copy / "quickstart.sh"
        subprocess.run([script, "run", "build", "--", "true"], check=True, timeout=BUILD,
                       capture_output=True, stdin=subprocess.DEVNULL)
        yield script


@pytest.fixture
def place(tmp_path_factory):
    """Where it makes its own folder; nothing may be left there, nor any process that names it."""
    with tempfile.TemporaryDirectory(prefix="lb-") as folder:
        yield folder
        assert os.listdir(folder) == []
        assert processes_of(folder) == []


def processes_of(folder):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if folder in arguments:
            found.append(arguments)
    return found


def start(script, place, *argv, **options):
    env = {**os.environ, "TMPDIR": place, "PATH": options.pop("path", os.environ["PATH"])}
    return subprocess.Popen([script, *argv], cwd="/", env=env, text=True,
                            stdin=options.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)


def run(script, place, *argv, text=None):
    process = start(script, place, *argv, stdin=subprocess.PIPE)
    out, err = process.communicate(text, timeout=2 * PATIENCE)
    return process.returncode, out, err


def test_the_main_job_is_shown(script, place):
    code, out, err = run(script, place)
    assert code == 0, out + err
    marks = ["I hold nightly-backup, fence ", "first: begins", "the first", "first: ends",
             "second: has it now", "to be killed", "ms after the kill", "done"]
    places = [out.index(mark) for mark in marks]
    assert places == sorted(places), out
    assert "data_loss = ignore" in err


def test_a_command_of_ones_own(script, place):
    code, out, _ = run(script, place, "run", "k", "--wait", "0", "--",
                       "sh", "-c", 'cat; echo "$LOCKBROKER_KEY"; pwd; exit 42', text="input\n")
    assert code == 42
    assert out == "input\nk\n/\n"


@pytest.mark.parametrize("argv", [["frobnicate"], ["run"], ["run", "k"], ["--deps", "x"], ["show"]])
def test_usage(script, place, argv):
    code, out, err = run(script, place, *argv)
    assert (code, out) == (64, "") and err.startswith("Usage:")


def test_help(script, place):
    code, out, err = run(script, place, "--help")
    assert (code, err) == (0, "") and out.startswith("Usage:")


def test_packages_that_are_there_are_left_alone(script, place):
    assert run(script, place, "--deps") == (0, "", "")


def test_ctrl_c(script, place):
    """It goes to the whole group, as from a terminal; the command says what comes of it."""
    process = start(script, place, "run", "k", "--", "sh", "-c",
                    'trap "echo stopped; exit 7" INT; echo ready; while :; do sleep 0.05; done')
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (7, "stopped\n")


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_show_is_broken_off(script, place, number, code):
    process = start(script, place)
    wait_until(lambda: "begins" in process.stdout.readline(), "the first begins")
    os.killpg(process.pid, number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code


def test_a_server_that_does_not_start(script, place, lab):
    Path(lab.path("redis-server")).write_text("#!/bin/sh\necho no room >&2\nexit 3\n", encoding="utf-8")
    os.chmod(lab.path("redis-server"), 0o755)
    process = start(script, place, path=lab.directory + ":" + os.environ["PATH"])
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "no room" in err and "did not come" in err, (out, err)


def test_a_place_too_long_for_sockets(script, lab):
    folder = lab.path("x" * 100)
    os.mkdir(folder)
    assert run(script, folder, "run", "k", "--", "echo", "fine")[:2] == (0, "fine\n")
