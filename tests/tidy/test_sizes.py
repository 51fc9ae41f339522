"""Files and functions stay small enough to be read at once."""

import re
import statistics

import source

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 15
CODE = (".c", ".h", ".def", ".py", ".sh")


def functions(path):
    """(name, lines, line number) of each; clang-format puts their braces into the first column."""
    lines = source.text(path).splitlines()
    begin = None
    for number, line in enumerate(lines):
        if line == "{":
            begin = number
            while begin > 0 and re.match(r"[A-Za-z ]", lines[begin - 1]) and \
                    not lines[begin - 1].endswith((";", "}")):
                begin -= 1
        elif line.startswith("}") and begin is not None:
            name = re.search(r"(\w+)\(", " ".join(lines[begin:number]))
            yield name[1] if name else "?", number - begin + 1, begin + 1
            begin = None


def macros(path):
    """(name, lines, line number) of each macro."""
    for match in re.finditer(r"^#define (\w+)(?:.*\\\n)*.*", source.text(path), re.MULTILINE):
        yield match[1], match[0].count("\n") + 1, source.text(path).count("\n", 0, match.start()) + 1


def test_files():
    counts = {path: source.text(path).count("\n") for path in source.files(suffixes=CODE)}
    source.show([f"{path}: {count} lines" for path, count in counts.items()
                 if count > FILE_LINES_MAX])


def test_functions():
    source.show([f"{path}:{number}: {name} has {count} lines"
                 for path in source.c_files() for name, count, number in
                 [*functions(path), *macros(path)] if count > FUNCTION_LINES_MAX])


def test_median():
    for top in source.PRODUCT:
        counts = [count for path in source.c_files(top) for _, count, _ in functions(path)]
        median = statistics.median(counts)
        print(f"{top}: {len(counts)} functions, median {median} lines, longest {max(counts)}")
        assert median <= FUNCTION_LINES_MEDIAN


def test_functions_are_found():
    found = {name: count for name, count, _ in functions(source.Path("daemon/core/lock.c"))}
    assert found["lock_move"] == 7 and found["lock_new"] == 12
    assert len(found) > 20
    found = {name: count for name, count, _ in macros(source.Path("proto/macros.h"))}
    assert found["LB_MUST_CHECK"] == 1 and found["lb_assert"] > 5
