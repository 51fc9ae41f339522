"""Who may include what, and who may do what: the code held against rooms.toml."""

import re
import tomllib

import source

with open(source.ROOT / "tests/tidy/rooms.toml", "rb") as table:
    RULES = tomllib.load(table)


def includes(path):
    """(quoted or angle, name, line number)"""
    for number, line in enumerate(source.text(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield match[1], match[2], number


def check(rules, paths):
    """All that breaks the rules, and all rows of the rules that nothing needs."""
    problems = []
    unused = {(folder, name) for folder, row in rules["folder"].items()
              for kind in ("own", "system") for name in row.get(kind, [])}
    unused |= {(name, folder) for name, folders in rules["library"].items() for folder in folders}
    for path in paths:
        folder = str(path.parent)
        row = rules["folder"].get(folder)
        if row is None:
            problems.append(f"{path}: its folder has no row in the table")
            continue
        for kind, name, number in includes(path):
            place = f"{path}:{number}"
            unused.discard((folder, name))
            if kind == '"':
                if not (source.ROOT / name).is_file():
                    problems.append(f"{place}: no full path: {name}")
                elif name.rpartition("/")[0] != folder and name not in row["own"]:
                    problems.append(f"{place}: {folder} may not include {name}")
                continue
            for library, folders in rules["library"].items():
                if name.startswith(library):
                    unused.discard((library, folder))
                    if folder not in folders:
                        problems.append(f"{place}: {name} belongs to {', '.join(folders)}")
            if "system" in row and name not in row["system"]:
                problems.append(f"{place}: {folder} may not include <{name}>")
    problems += [f"rooms.toml: not needed: {row}" for row in sorted(unused)]
    return problems


def test_includes():
    source.show(check(RULES, source.c_files(*source.PRODUCT)))


def test_acts():
    problems = []
    for act in RULES["act"]:
        places = {str(path) for path in source.c_files(*source.PRODUCT)
                  if re.search(act["regex"], source.code(path))}
        problems += [f"{place}: {act['what']}" for place in sorted(places - set(act["files"]))]
        problems += [f"rooms.toml: not needed: {place}: {act['what']}"
                     for place in sorted(set(act["files"]) - places)]
    source.show(problems)


def test_no_cycle_between_folders():
    arrows = {folder: {name.rpartition("/")[0] for name in row["own"]}
              for folder, row in RULES["folder"].items()}
    while arrows:
        ends = [folder for folder, targets in arrows.items() if not targets & set(arrows)]
        assert ends, f"these folders include each other: {sorted(arrows)}"
        for folder in ends:
            del arrows[folder]


def test_a_wrong_include_is_seen():
    rules = {"folder": {"daemon/core": {"own": ["proto/buf.h"], "system": ["uv.h"]}},
             "library": {"bsd/": ["daemon/io"]}}
    problems = check(rules, [source.Path("daemon/core/book.h")])
    assert any("may not include daemon/base/rng.h" in problem for problem in problems)
    assert any("may not include <stdint.h>" in problem for problem in problems)
    assert any("not needed: ('daemon/core', 'uv.h')" in problem for problem in problems)
    assert any("no row" in problem for problem in check(rules, [source.Path("proto/buf.h")]))
    problems = check(rules, [source.Path("daemon/core/lock.h")])
    assert any("bsd/sys/tree.h belongs to daemon/io" in problem for problem in problems)
