"""Files and functions stay small enough to be read at once."""

import re
import statistics

import source

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 15
CODE = (".c", ".h", ".def", ".py", ".sh")


def functions(text):
    """(name, lines, line number) of each; clang-format puts their braces into the first column."""
    lines = text.splitlines()
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


def macros(text):
    """(name, lines, line number) of each macro."""
    for match in re.finditer(r"^#define (\w+)(?:.*\\\n)*.*", text, re.MULTILINE):
        yield match[1], match[0].count("\n") + 1, text.count("\n", 0, match.start()) + 1


def test_files():
    counts = {path: source.text(path).count("\n") for path in source.files(suffixes=CODE)}
    source.show([f"{path}: {count} lines" for path, count in counts.items()
                 if count > FILE_LINES_MAX])


def test_functions():
    source.show([f"{path}:{number}: {name} has {count} lines"
                 for path in source.c_files() for name, count, number in
                 [*functions(source.text(path)), *macros(source.text(path))]
                 if count > FUNCTION_LINES_MAX])


def test_median():
    for top in source.PRODUCT:
        counts = [count for path in source.c_files(top) for _, count, _ in functions(source.text(path))]
        median = statistics.median(counts)
        print(f"{top}: {len(counts)} functions, median {median} lines, longest {max(counts)}")
        assert median <= FUNCTION_LINES_MEDIAN


SAMPLE = """\
#define ONE 1
#define THREE(x) \\
    do {         \\
    } while (0)

struct s {
    int member;
};

// About it.
int short_one(int a)
{
    return a;
}

static int
long_one(int a,
         int b)
{
    if (a) {
        b++;
    }
    return b;
}
"""


def test_functions_are_found():
    assert list(functions(SAMPLE)) == [("short_one", 4, 11), ("long_one", 9, 16)]
    assert list(macros(SAMPLE)) == [("ONE", 1, 1), ("THREE", 3, 2)]
    whole = source.text(source.Path("daemon/core/broker.c"))
    assert {"broker_step", "broker_new", "attend_once"} <= {name for name, _, _ in functions(whole)}
