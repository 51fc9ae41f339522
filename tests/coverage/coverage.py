"""Runs the suites that count, shows what they covered of each folder, and holds it against the
floors of coverage.toml. Exits 0 only if every suite passed and every floor is reached."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tomllib

PRODUCT = ("proto", "config", "daemon", "client")
GCOVR = "/usr/bin/gcovr"


class Share:
    """How many there are, and how many of them were reached."""

    def __init__(self):
        self.all = 0
        self.reached = 0

    def add(self, counts):
        counts = list(counts)
        self.all += len(counts)
        self.reached += sum(count > 0 for count in counts)

    def percent(self):
        return 100 * self.reached / self.all if self.all else 100.0

    def __str__(self):
        return f"{self.percent():6.2f} % ({self.all - self.reached:3d} of {self.all:4d} missed)"


def run_suites(rules, build, jobs):
    """Counters of an earlier run, or of another build of a file, would be added to these."""
    for counters in build.rglob("*.gcda"):
        counters.unlink()
    return subprocess.run(["ctest", "--test-dir", build, "-j", jobs, "--output-on-failure",
                           "--no-tests=error", "-R", rules["suites"]["run"],
                           "-E", "|".join(rules["suites"]["leave"])], check=False).returncode == 0


def count(rules, source, build):
    """Leaves the reports in the build folder, and returns gcovr's counts of each file."""
    report = build / "coverage"
    shutil.rmtree(report, ignore_errors=True)
    report.mkdir()
    patterns = "|".join(f"(?:{pattern})" for pattern in rules["branches_not_counted"])
    subprocess.run([GCOVR, "--root", source,
                    *(f"--filter={source}/{folder}/" for folder in PRODUCT),
                    "--exclude-branches-by-pattern", f"(?:{patterns}).*",
                    "--json", report / "counts.json", "--txt", report / "lines.txt",
                    "--html-details", report / "index.html",
                    *(build / folder for folder in PRODUCT)], check=True, cwd=build)
    with open(report / "counts.json", encoding="utf-8") as counts:
        return json.load(counts)["files"]


def shares(files):
    """Folder to (lines, branches)."""
    result = {}
    for file in files:
        folder = file["file"].rpartition("/")[0]
        lines, branches = result.setdefault(folder, (Share(), Share()))
        for line in file["lines"]:
            if not line.get("gcovr/noncode"):
                lines.add([line["count"]])
                branches.add(branch["count"] for branch in line["branches"])
    return result


def total(folders, found):
    """The shares of several folders as one."""
    result = (Share(), Share())
    for folder in folders:
        for whole, part in zip(result, found[folder]):
            whole.all += part.all
            whole.reached += part.reached
    return result


def floors_hold(rules, found):
    good = True
    for floor in rules["floor"]:
        lines, branches = total(floor["folders"], found)
        reached = lines.percent() >= floor["lines"] and branches.percent() >= floor["branches"]
        good = good and reached
        print(f"{floor['name']:16}  {lines}  {branches}  "
              f"{'ok' if reached else 'BELOW'}: at least {floor['lines']}, {floor['branches']}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--no-run", action="store_true", help="count what earlier runs have left")
    options = parser.parse_args()
    with open(pathlib.Path(__file__).with_name("coverage.toml"), "rb") as table:
        rules = tomllib.load(table)

    passed = options.no_run or run_suites(rules, options.build, options.jobs)
    found = shares(count(rules, options.source, options.build))
    print(f"\n{'':16}  {'lines':30}  branches")
    for folder, (lines, branches) in sorted(found.items()):
        print(f"{folder:16}  {lines}  {branches}")
    print()
    good = floors_hold(rules, found)
    print(f"\nline by line: {options.build / 'coverage' / 'index.html'}")
    if not passed:
        print("coverage: a suite failed")
    return 0 if passed and good else 1


if __name__ == "__main__":
    sys.exit(main())
