"""What the documents name exists: files, functions, tests, options of scripts."""

import re

import pytest
import source

PAGES = [path for path in source.files(suffixes=(".md",))]
TOPS = ("daemon", "proto", "client", "config", "systemd", "tests", "build")


def prose(page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", source.text(page), flags=re.MULTILINE | re.DOTALL)


def everything():
    return "\n".join(source.text(path) for path in source.files(
        *source.PRODUCT, "tests", "CMakeLists.txt", suffixes=(".c", ".h", ".def", ".py", ".txt", ".in")))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links(page):
    problems = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        file = (source.ROOT / page.parent / path) if path else source.ROOT / page
        if not file.exists():
            problems.append(f"{page}: no such file: {target}")
        elif anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            names = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}
            if anchor not in names:
                problems.append(f"{page}: no such section: {target}")
    source.show(problems)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_paths(page):
    named = re.findall(r"`\.?/?((?:%s)/[\w./-]*)`" % "|".join(TOPS), prose(page))
    source.show([f"{page}: no such file: {name}" for name in named
                 if not name.startswith("build") and not (source.ROOT / name).exists()])


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_names_of_code(page):
    """`name()`, `EVENT_NAME` and, in the architecture, every `name_with_underscore`."""
    code = everything()
    names = re.findall(r"`(\w+)\(\)`|`([A-Z]+_[A-Z_]+)`", prose(page))
    names = [one or other for one, other in names]
    if page.name == "ARCHITECTURE.md":
        names += re.findall(r"`([a-z]+(?:_[a-z]+)+)`", prose(page))
    source.show([f"{page}: there is no {name}" for name in names
                 if not re.search(rf"\b{name}\b", code)])


def test_the_transition_table():
    table = source.code(source.Path("daemon/core/lock.c")).split("transitions[LOCK_STATES] =")[1].split("};")[0]
    coded = {(state, target) for state, targets in re.findall(r"\[LOCK_(\w+)\] = ([^,]*),", table)
             for target in re.findall(r"BIT\(LOCK_(\w+)\)", targets)}
    written = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", source.text("ARCHITECTURE.md"), re.MULTILINE)
    assert len(coded) > 10 and set(written) == coded and len(written) == len(coded)


def test_every_promise_names_its_tests():
    section = source.text("README.md").split("## What it promises")[1].split("\n###")[0]
    promises = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(promises) >= 7
    source.show([promise for promise in promises if "`tests/" not in promise])


def test_options_of_the_scripts():
    for script in ("quickstart.sh", "test.sh"):
        text = source.text(script)
        usage = text.split("<<'EOF'\n")[1].split("\nEOF")[0]
        known = set(re.findall(r"--[a-z-]+", usage))
        for page in PAGES:
            for line in re.findall(rf"\./{script}[^\n`]*", source.text(page)):
                named = set(re.findall(r"--[a-z][a-z-]+", line.split("#")[0].split(" -- ")[0]))
                assert named <= known, (page, line)
        assert all(flag in text.split("\nEOF")[1] for flag in known)
