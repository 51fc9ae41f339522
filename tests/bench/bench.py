#!/usr/bin/python3
"""Benchmarks of lockbroker beside its peers: all in turn, round after round, in one run.

    bench.py --bin build/bin --short      all cases, once: minutes
    bench.py --bin build/bin --full       five rounds: what the README shows
    bench.py --bin build/bin --case hot-8 --case kill

It starts private Redis servers and daemons, and writes results.json, table.md and plots to --out.
The exit code is 1 when a lock had two holders, or was lost, or when something could not be measured.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import cases
import measure
import plot
import report
import scenes
import servers

SETTINGS = {
    "short": {"rounds": 1, "warm_ms": 100, "run_ms": 350, "scene_rounds": 1, "hold_s": 2},
    "full": {"rounds": 5, "warm_ms": 150, "run_ms": 900, "scene_rounds": 3, "hold_s": 3,
             "kills": 100, "lengthy": True},
    "smoke": {"rounds": 1, "warm_ms": 50, "run_ms": 250, "scene_rounds": 1, "scale": 0.01,
              "hold_s": 1, "kills": 3, "lengthy": True, "languages": (cases.LOAD,)},
}


class Run:
    """What has been measured, by case and peer, a dictionary of figures for each round."""

    def __init__(self, setting):
        self.setting = setting
        self.results = {}
        self.skipped = {}
        self.problems = []

    def add(self, case, label, number, act):
        """Does one measurement, and keeps its figures or why there are none."""
        if label in self.skipped.get(case, {}):
            return
        began = time.monotonic()
        try:
            found = act()
        except measure.Skipped as reason:
            self.skipped.setdefault(case, {})[label] = str(reason)
            print(f"{case}: {label} is skipped: {reason}", flush=True)
            return
        except (measure.Failed, OSError, AssertionError) as error:
            text = ": ".join([str(error), *getattr(error, "__notes__", [])])
            self.problems.append(f"{case}, {label}, round {number + 1}: {text}")
            print(f"problem: {self.problems[-1]}", flush=True)
            return
        self.results.setdefault(case, {}).setdefault(label, []).append({"round": number, **found})
        self.check(case, label, number, found)
        print(f"{case}: {label}, round {number + 1}, {time.monotonic() - began:.1f} s: "
              f"{report.sketch(found)}", flush=True)

    def in_turn(self, case, rounds, act):
        """Each peer once a round. Nobody is always the first, or always behind the same."""
        for number in range(rounds):
            shift = number % len(case.peers)
            for label in case.peers[shift:] + case.peers[:shift]:
                self.add(case.name, label, number,
                         lambda label=label, number=number: act(label, number))

    def check(self, case, label, number, found):
        if found.get("overlaps"):
            self.problems.append(f"{case}, {label}, round {number + 1}: {found['overlaps']} overlaps")
        if found.get("lost") and report.is_ours(label):
            self.problems.append(f"{case}, {label}, round {number + 1}: {found['lost']} lost")


def run_load(run, case):
    with servers.World(run.setting.programs, case.cores, case.tcp) as world:
        run.in_turn(case, run.setting.rounds, lambda label, number: measure.load(
            run.setting, world, case, cases.PEERS[label], f"bench:{case.name}:{label}:{number}"))


def node_packages(folder):
    """Installs the peers in Node, once; returns where they are, or an empty text."""
    if not shutil.which("node") or not shutil.which("npm"):
        return ""
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(measure.HERE, "package.json"), folder)
    modules = os.path.join(folder, "node_modules")
    if not os.path.isdir(os.path.join(modules, "redlock")):
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=False,
                              stdout=subprocess.DEVNULL)
        if done.returncode:
            return ""
    return modules


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    for name, text in (("short", "each case once, briefly (the default)"),
                       ("full", "five rounds"), ("smoke", "as little as shows that all works")):
        length.add_argument(f"--{name}", dest="length", action="store_const", const=name, help=text)
    parser.add_argument("--bin", required=True, help="the folder of lockbrokerd and bench_load")
    parser.add_argument("--case", action="append", metavar="NAME",
                        help="only this case, or those whose names begin so before a `*`")
    parser.add_argument("--list", action="store_true", help="name the cases, and end")
    parser.add_argument("--out", default="bench-results", help="folder for what is found")
    parser.add_argument("--rounds", type=int, help="another number of rounds")
    parser.add_argument("--node", metavar="DIR", help="where packages for Node are or get installed "
                        "(by default in --out)")
    return parser.parse_args(arguments)


def setting_of(options):
    setting = measure.Setting(programs=os.path.abspath(options.bin),
                              **SETTINGS[options.length or "short"])
    if options.rounds:
        setting = replace(setting, rounds=options.rounds, scene_rounds=options.rounds)
    if cases.NODE in setting.languages:
        folder = os.path.abspath(options.node or os.path.join(options.out, "node"))
        setting = replace(setting, node_path=node_packages(folder))
    return setting


def wanted(options, name):
    return not options.case or any(name == case or case.endswith("*") and name.startswith(case[:-1])
                                   for case in options.case)


def main():
    options = parse(sys.argv[1:])
    if options.list:
        for name, title in [(case.name, case.title) for case in cases.LOADS] + scenes.titles():
            print(f"{name:26}{title}")
        return 0
    os.makedirs(options.out, exist_ok=True)
    run = Run(setting_of(options))
    began = time.monotonic()
    for case in cases.LOADS:
        if wanted(options, case.name):
            run_load(run, case)
    for scene in scenes.SCENES:
        named = options.case and scene.name in options.case
        if wanted(options, scene.name) and (named or run.setting.lengthy or not scene.lengthy):
            scene.measure(run, scene)
    took_s = time.monotonic() - began
    whole = report.write(run, options, took_s)
    plot.draw_all(whole, options.out)
    print(f"{took_s:.0f} s; {os.path.join(options.out, 'table.md')}")
    for problem in run.problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if run.problems or not run.results else 0


if __name__ == "__main__":
    sys.exit(main())
