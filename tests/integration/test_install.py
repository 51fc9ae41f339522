"""An installed library is found, compiled against and run, wherever it was installed to."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["LOCKBROKER_BIN"]).parent
PROGRAM = """
#include <lockbroker.h>
#include <stdio.h>
int main(void)
{
    struct lb_client *client;
    int r = lb_connect("/nonexistent/socket", NULL, &client);
    lb_close(client);
    printf("%s, %s\\n", lb_version(), lb_error_text(r));
    return 0;
}
"""


def run(*words, **env):
    done = subprocess.run([str(word) for word in words], env={**os.environ, **env}, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cached(name):
    """A variable that the build was configured with."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def instrumented():
    flags = []
    if cached("LB_SANITIZE") == "ON":
        flags.append("-fsanitize=address,undefined")
    if cached("LB_COVERAGE") == "ON":
        flags.append("--coverage")
    return flags


def package(root):
    """The folder of the one lockbroker.pc under `root`."""
    [found] = root.rglob("lockbroker.pc")
    return found.parent


def use(folder, tmp_path):
    """Builds a program as its own build would, and runs it."""
    flags = run("pkg-config", "--cflags", "--libs", "lockbroker", PKG_CONFIG_PATH=folder).split()
    (tmp_path / "program.c").write_text(PROGRAM, encoding="utf-8")
    run(cached("CMAKE_C_COMPILER"), "-o", tmp_path / "program", tmp_path / "program.c",
        *instrumented(), *flags)
    libraries = run("pkg-config", "--variable=libdir", "lockbroker", PKG_CONFIG_PATH=folder).strip()
    told = run(tmp_path / "program", LD_LIBRARY_PATH=libraries)
    assert re.fullmatch(r"\d+\.\d+\.\d+, the socket does not exist\n", told)
    return Path(libraries).resolve()


def test_installed_under_another_prefix(tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    assert prefix.resolve() in use(package(prefix), tmp_path).parents
    assert (prefix / "bin" / "lockbroker").exists()


def test_staged_and_moved(tmp_path):
    staged = tmp_path / "staged"
    run("cmake", "--install", BUILD, "--prefix", "/opt/lockbroker", DESTDIR=staged)
    assert use(package(staged), tmp_path) != Path("/opt/lockbroker")
    shutil.move(staged / "opt/lockbroker", tmp_path / "moved")
    assert (tmp_path / "moved").resolve() in use(package(tmp_path / "moved"), tmp_path).parents


@pytest.mark.parametrize("libdir, includedir", [
    ("lib", "include"), ("lib64", "include/lockbroker"), ("lib/x86_64-linux-gnu", "include"),
    ("/srv/lib", "/srv/include")])
def test_every_layout(tmp_path, libdir, includedir):
    """Only the package file is looked at: a whole build for each layout would take minutes."""
    run("cmake", "-S", ROOT, "-B", tmp_path / "build", "-DLB_TESTS=OFF",
        f"-DCMAKE_INSTALL_LIBDIR={libdir}", f"-DCMAKE_INSTALL_INCLUDEDIR={includedir}")
    folder = tmp_path / "prefix" / libdir.lstrip("/") / "pkgconfig"
    folder.mkdir(parents=True)
    shutil.copy(tmp_path / "build/client/lib/lockbroker.pc", folder)
    for variable, wanted in (("libdir", libdir), ("includedir", includedir)):
        told = run("pkg-config", f"--variable={variable}", "lockbroker", PKG_CONFIG_PATH=folder)
        assert os.path.normpath(told.strip()) == str(tmp_path / "prefix" / wanted)
