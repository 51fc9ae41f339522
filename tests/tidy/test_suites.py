"""No test is left out: each suite is known to CTest, each test to its suite."""

import os
import re
from pathlib import Path

import source

# Made of other things than one folder or file of tests.
OTHERS = {"unit.client_symbols", "sim.seeds", "sim.determinism", "sim.redis"}

# Only in a build without the sanitizers: compiled anew for each mutant, it would take too long.
SOME_BUILDS = {"mutants.core"}


def registered():
    """Read from CTest's own files: asking CTest would overwrite the log of the run we are part of."""
    names = set()
    for file in Path(os.environ["LB_BUILD"]).rglob("CTestTestfile.cmake"):
        names |= set(re.findall(r"^add_test\((?:\[=*\[)?([\w.]+)", file.read_text(encoding="utf-8"),
                                re.MULTILINE))
    return names


def expected():
    names = {f"unit.{path.parts[2]}" for path in source.c_files("tests") if path.parts[1] == "unit"}
    for path in source.files("tests", suffixes=(".py", ".c")):
        match = re.fullmatch(r"tests/(?:integration/)?(integration|chaos|fault|waiting|tidy|bench)/"
                             r"test_(\w+)\.py|tests/(fuzz)/fuzz_(\w+)\.c", str(path))
        if match:
            names.add(f"{match[1] or match[3]}.{match[2] or match[4]}")
    names |= {f"model.{path.stem}" for path in source.files("tests", suffixes=(".pml",))}
    return names


def test_every_suite_is_registered():
    assert registered() - SOME_BUILDS == expected() | OTHERS


def test_every_layer_has_unit_tests():
    folders = {path.parent for path in source.c_files(*source.PRODUCT) if path.suffix == ".c"}
    wanted = {"client" if folder.parts[0] == "client" else folder.name
              for folder in folders if str(folder) != "daemon"}
    assert wanted == set(layers())


def layers():
    found = {}
    for path in source.c_files("tests"):
        if path.parts[1] == "unit":
            found.setdefault(path.parts[2], []).append(path)
    return found


def test_every_suite_of_a_layer_runs():
    problems = []
    for layer, paths in layers().items():
        main = source.code(source.Path("tests/unit") / layer / "main.c")
        for path in paths:
            for name in re.findall(r"^Suite \*(\w+)\(void\)$", source.code(path), re.MULTILINE):
                if not re.search(rf"\b{name}\b", main):
                    problems.append(f"{path}: {name} is not run")
    source.show(problems)


def test_every_test_is_added():
    problems = []
    for paths in layers().values():
        for path in paths:
            code = source.code(path)
            for name in re.findall(r"\bSTART_TEST\((\w+)\)", code):
                if len(re.findall(rf"\b{name}\b", code)) < 2:
                    problems.append(f"{path}: {name} is not added")
    source.show(problems)


def test_no_test_hides_another():
    """Python keeps only the last of two functions of one name."""
    problems = []
    for path in source.files("tests", suffixes=(".py",)):
        names = re.findall(r"^def (test_\w+)", source.text(path), re.MULTILINE)
        problems += [f"{path}: {name} twice" for name in set(names) if names.count(name) > 1]
    source.show(problems)
