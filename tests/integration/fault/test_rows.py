"""No row of the fault matrix is left out: each has its tests, or a reason why it has none."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROWS = range(1, 61)


def table():
    """What the README says of each row: its last column."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(ROWS)
    return {int(number): where for number, where in rows}


def files_by_row():
    """The files that have tests of each row; one test may be of several, as test_row_05_11_..."""
    found = {}
    for path in HERE.glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for numbers in re.findall(r"^def test_row((?:_\d\d)+)_[a-z]", text, re.MULTILINE):
            for number in numbers.split("_")[1:]:
                found.setdefault(int(number), set()).add(path.name)
    return found


def test_each_row_is_where_the_table_says():
    found = files_by_row()
    for number, where in table().items():
        named = set(re.findall(r"`(test_\w+\.py)`", where))
        assert named == found.get(number, set()), f"row {number}: {where}"
        elsewhere = re.findall(r"`(\.\./\w+/test_\w+\.py)`", where)
        assert all((HERE / path).exists() for path in elsewhere), f"row {number}: {where}"
        assert named or elsewhere or where.startswith("not yet: "), f"row {number}: {where}"


def test_every_test_is_of_a_row():
    for path in HERE.glob("test_*.py"):
        if path.name != Path(__file__).name:
            names = re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert names, path
            assert not [name for name in names if not re.match(r"test_row_\d\d_", name)], path
            assert len(set(names)) == len(names), path
