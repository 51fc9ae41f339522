#!/usr/bin/env python3
"""Runs the simulator on each mutant of mutants.toml; every one must be found.

Usage: mutants.py SOURCE BUILD [NAME...]

SOURCE is the checkout, BUILD a build folder in which the simulator is built. A mutated file is
compiled as BUILD compiles it, and linked before the archive that has the true one. A mutant counts
as found when a run of it ends in a violation, or in a failed assertion, within EVENTS_MAX events.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

EVENTS_MAX = 100000
SEEDS = range(1, 41)
OPERATIONS = "3000"


def compile_command(build, path):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            if entry["file"] == path:
                return entry["directory"], shlex.split(entry["command"])
    raise SystemExit(f"{path} is not compiled in {build}")


def mutate(source, folder, mutant):
    """Writes the mutated file and returns its path."""
    with open(os.path.join(source, mutant["file"]), encoding="utf-8") as file:
        text = file.read()
    count = text.count(mutant["old"])
    if count != 1:
        return None, f"its text stands {count} times in {mutant['file']}"
    path = os.path.join(folder, os.path.basename(mutant["file"]))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(mutant["old"], mutant["new"]))
    return path, None


def build_mutant(source, build, folder, mutant):
    """Returns the program, or None and what is wrong."""
    path, problem = mutate(source, folder, mutant)
    if problem:
        return None, problem
    directory, command = compile_command(build, os.path.join(source, mutant["file"]))
    mutated = os.path.join(folder, "mutated.o")
    command[command.index("-o") + 1] = mutated
    command[-1] = path
    command = [word for word in command if word != "-Werror"] + ["-w"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, "it does not compile: " + done.stderr[-2000:]
    program = os.path.join(folder, "sim")
    with open(os.path.join(build, "tests", "sim", "link.txt"), encoding="utf-8") as file:
        link = shlex.split(file.read())
    at = link.index("MUTATED")
    link[at] = mutated
    link[link.index("PROGRAM")] = program
    done = subprocess.run(link, cwd=build, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, "it does not link: " + done.stderr[-2000:]
    return program, None


def hunt(program, mutant):
    """Runs seeds until one fails. Returns the seed, its events, and what was violated."""
    options = ["--only", mutant["faults"]] if "faults" in mutant else []
    for seed in SEEDS:
        done = subprocess.run([program, "--seed", str(seed), "--operations", OPERATIONS, *options],
                              capture_output=True, text=True, check=False, timeout=300)
        if done.returncode == 0:
            continue
        match = re.search(r"event (\d+): (.*)", done.stdout)
        if not match:
            return seed, 0, (done.stderr.strip().splitlines() or ["it died"])[-1]
        if int(match[1]) <= EVENTS_MAX:
            return seed, int(match[1]), match[2]
    return None, 0, "not found"


def try_mutant(source, build, name, mutant):
    with tempfile.TemporaryDirectory() as folder:
        program, problem = build_mutant(source, build, folder, mutant)
        if problem:
            return False, f"{name}: {problem}"
        seed, events, what = hunt(program, mutant)
        if seed is None:
            return False, f"{name}: NOT FOUND in {len(SEEDS)} seeds"
        return True, f"{name}: seed {seed}, {events} events: {what}"


def main():
    source, build = sys.argv[1], sys.argv[2]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutants.toml"),
              "rb") as file:
        mutants = tomllib.load(file)
    names = sys.argv[3:] or list(mutants)
    found = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(try_mutant, source, build, name, mutants[name]) for name in names]
        for job in jobs:
            is_found, text = job.result()
            found += is_found
            print(text, flush=True)
    print(f"{found} passed, {len(names) - found} failed")
    return 0 if found == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
