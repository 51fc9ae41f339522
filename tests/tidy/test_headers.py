"""Every header compiles alone, also when it is included twice."""

import os
import shutil
import subprocess

import pytest
import source

LIBRARIES = ("libuv", "hiredis", "jansson", "inih", "libmd", "libsystemd", "check")
COMPILER = os.environ.get("CC", "cc")
HEADERS = [path for path in source.c_files() if path.suffix == ".h"]


@pytest.fixture(scope="module")
def flags():
    words = ["-D_GNU_SOURCE", '-DLB_VERSION="0"', "-I", str(source.ROOT)]
    for library in LIBRARIES:
        words += subprocess.run(["pkg-config", "--cflags", library], check=True, text=True,
                                capture_output=True).stdout.split()
    return words


def compile_alone(header, flags, language="c", standard="gnu17", compiler=COMPILER):
    lines = f'#include "{header}"\n' * 2
    run = subprocess.run([compiler, "-x", language, f"-std={standard}", "-fsyntax-only", "-Wall",
                          "-Wextra", "-Werror", *flags, "-"], input=lines, text=True,
                         capture_output=True, check=False)
    return run.stderr if run.returncode else ""


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_alone(header, flags):
    problem = compile_alone(header, flags)
    assert not problem, problem


@pytest.mark.parametrize("language,standard", [("c", "c99"), ("c", "c17"), ("c++", "c++11")])
def test_public_header(language, standard):
    """Nothing but the language is asked of programs that include it."""
    compiler = COMPILER if language == "c" else shutil.which("clang") or shutil.which("g++")
    if not compiler:
        pytest.skip("no compiler for C++")
    problem = compile_alone("client/lib/lockbroker.h", ["-I", str(source.ROOT), "-pedantic"],
                            language, standard, compiler)
    assert not problem, problem


def test_a_header_that_needs_another_is_seen(flags, tmp_path):
    (tmp_path / "bad.h").write_text("uint64_t number;\n", encoding="utf-8")
    assert "uint64_t" in compile_alone(tmp_path / "bad.h", flags)
