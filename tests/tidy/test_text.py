"""The rules for text that a machine can see."""

import re
import shutil
import subprocess

import pytest
import source

SCRIPTS = ["quickstart.sh", "test.sh", ".ci/run"]
PAGES = source.files(suffixes=(".scd",))
TEXTS = [path for path in source.files() if "corpus" not in path.parts]

# In pieces, so that this file has none of them.
PUT_OFF = re.compile(r"\b(" + "|".join(["TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"]) + r")\b")
MACHINE = re.compile(r"(?<![\w.])/(" + "|".join(["work", "farm", "root", "home/[a-z]+",
                                                  "tmp/helper"]) + r")(/|\b)")


def lines(pattern, paths, read=source.text):
    return [f"{path}:{number}: {line.strip()}" for path in paths
            for number, line in enumerate(read(path).split("\n"), 1) if re.search(pattern, line)]


def test_nothing_is_put_off():
    source.show(lines(PUT_OFF, TEXTS))


def test_no_path_of_one_machine():
    source.show(lines(MACHINE, [path for path in TEXTS if path.parts[0] != "tests"]))


def test_white_space():
    source.show(lines(r"[ \t\r]$", TEXTS))
    source.show([f"{path}: no newline at its end" for path in TEXTS
                 if not source.text(path).endswith("\n") or source.text(path).endswith("\n\n")])


def test_rules_of_style():
    source.show(lines(r"\bgoto\b|\btypedef (struct|union|enum)\b", source.c_files(), source.code))


def test_no_code_is_commented_out():
    paths = [path for path in source.c_files() if path.name != "lockbroker.h"]  # it has an example
    source.show(lines(r"^\s*//\s*[\w>.\[\]*-]+( = .*|\(.*\));$|^\s*//\s*(if|for|while) \(.*\)( \{)?$",
                      paths))


def test_every_c_file_says_what_it_is():
    source.show([path for path in source.c_files()
                 if (path.suffix == ".c" or path.parts[0] in source.PRODUCT)
                 and not source.text(path).startswith("// ")])


def test_include_guards():
    names = {}
    for path in source.c_files():
        if path.suffix == ".h":
            guard = re.search(r"^#ifndef (\w+)\n#define \1\n", source.text(path), re.MULTILINE)
            assert guard, path
            assert guard[1] not in names, (path, names[guard[1]])
            names[guard[1]] = path


def tool(name, version=None):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    if version:
        told = subprocess.run([name, "--version"], check=True, text=True, capture_output=True).stdout
        if version not in told:
            pytest.skip(f"the layout is that of {name}{version.rstrip('.')}, this is{told}")


def run(*words, **options):
    done = subprocess.run(words, cwd=source.ROOT, text=True, capture_output=True, check=False,
                          **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_layout():
    tool("clang-format", " version 14.")
    run("clang-format", "--dry-run", "-Werror", *map(str, source.c_files()))


def test_scripts():
    tool("shellcheck")
    run("shellcheck", *SCRIPTS)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_man_page(page):
    tool("scdoc")
    tool("mandoc")
    made = run("scdoc", input=source.text(page))
    told = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=made, text=True,
                          capture_output=True, check=False).stdout
    # scdoc begins a paragraph everywhere, also where there is none to begin.
    source.show([line for line in told.splitlines() if "skipping paragraph macro" not in line])


def test_the_patterns_see():
    assert PUT_OFF.search("a TO" "DO here") and not PUT_OFF.search("a to-do here")
    assert MACHINE.search("in /ro" "ot/x") and MACHINE.search("see /wo" "rk")
    assert not MACHINE.search("a.b/%s/x, /%sing" % ("work", "work"))
