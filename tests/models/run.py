"""Runs a model: each good set of bounds searched wholly without an error, each seeded error found.

    run.py lease                          all runs of lease.pml, as CTest does it
    run.py lease -D T=4 -D FAULTY=2       one run with bounds of your own
    run.py loss -D Q=4 --trace FILE       the shortest way to an error, step by step, in FILE
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOLDS = 0  # the other outcome is the number of the invariant that breaks


def good(name, *macros):
    return (f"good: {name}", macros, HOLDS)


def error(name, invariant, *macros):
    return (f"error: {name}", macros, invariant)


def limit(name, invariant, *macros):
    """No error of the design: what it says it does not cover."""
    return (f"not covered: {name}", macros, invariant)


# With ONLY_EXCLUSION the error must end in two holders, not only in what may lead there.
RUNS = {
    "lease": [
        good("base"),
        good("no allowance for late commands", "W=0"),
        good("late commands until the deadline", "W=2", "REASSERT"),
        good("two ttls", "T_SHORT=2", "REASSERT"),
        error("deadline from the reply", 1, "DEADLINE_FROM_REPLY", "ONLY_EXCLUSION"),
        error("deadline from the reply, too late for the key", 2, "DEADLINE_FROM_REPLY"),
        error("plain delete", 8, "PLAIN_DELETE"),
        error("plain delete, two holders", 1, "PLAIN_DELETE", "ONLY_EXCLUSION"),
        error("key freed at `lost`", 1, "FREE_AT_LOST", "ONLY_EXCLUSION"),
        error("renewal lowers the ttl", 1, "RENEW_LOWERS", "T_SHORT=2", "ONLY_EXCLUSION"),
        error("told without margin", 3, "TELL_LATE"),
        error("late reply revives", 4, "LATE_REVIVES"),
        error("no sweep before a reply", 4, "NO_SWEEP"),
        error("token used again", 7, "REUSE_TOKEN"),
        error("no not_after", 9, "NO_NOT_AFTER"),
        error("abandoned token forgotten", 10, "FORGET_TOKEN"),
        error("any delete settles", 9, "DELETE_ONCE"),
        error("delete judged by when it was read", 9, "DELETE_BY_REPLY"),
        error("a grant settles earlier tries", 9, "GRANT_SETTLES"),
        error("lost renewals do not count", 9, "RENEWALS_UNCOUNTED", "REASSERT"),
        error("renewal under way is forgotten", 10, "UNDER_WAY_FORGOTTEN", "W=2"),
    ],
    "loss": [
        good("failover, T=3 L=2 Q=5 E=2"),
        good("failover, one ttl shorter", "T_OTHERS=2"),
        good("restart, T=3 L=0 Q=3 E=0", "L=0"),
        good("restart and FLUSHALL", "L=0", "FLUSH"),
        error("Q one tick less", 1, "Q=4", "ONLY_EXCLUSION"),
        error("E one tick less", 1, "E=1", "ONLY_EXCLUSION"),
        error("restart, Q one tick less", 1, "L=0", "Q=2", "ONLY_EXCLUSION"),
        error("renewed at once", 1, "RENEW_AT_ONCE", "ONLY_EXCLUSION"),
        error("free keys at once", 1, "FREE_AT_ONCE", "ONLY_EXCLUSION"),
        error("restart, free keys at once", 1, "L=0", "FREE_AT_ONCE", "ONLY_EXCLUSION"),
        error("first broker does not wait", 1, "FIRST_DOES_NOT_WAIT", "L=0", "ONLY_EXCLUSION"),
        error("marker's run_id unchecked", 1, "MARKER_UNCHECKED", "L=0", "ONLY_EXCLUSION"),
        error("Q by the asker's own ttl", 1, "Q_OF_ASKER", "T_OTHERS=2", "ONLY_EXCLUSION"),
        error("set again after the deadline", 1, "REASSERT_LAPSED", "ONLY_EXCLUSION"),
        error("abandoned token tried again", 1, "REUSE_TOKEN", "ONLY_EXCLUSION"),
        error("deadline from the reply", 1, "DEADLINE_FROM_REPLY", "ONLY_EXCLUSION"),
        error("a lost marker is taken for a start", 1, "FLUSH_IS_A_START", "L=0", "FLUSH",
              "ONLY_EXCLUSION"),
        limit("FLUSHALL before a broker saw the marker", 1, "FLUSH_UNSEEN", "L=0", "FLUSH",
              "ONLY_EXCLUSION"),
        limit("FLUSHALL, then a broker that starts", 1, "RESTARTS", "L=0", "FLUSH",
              "ONLY_EXCLUSION"),
    ],
    "handoff": [
        good("leases and fences, K=2"),
        good("leases and fences, K=1, blocks of two", "K=1", "F=2"),
        good("whose turn it is", "LIVE"),
        good("whose turn it is, longer sleeps", "LIVE", "POLL=4"),
        good("whose turn it is, longer turns", "LIVE", "POLL=3", "TURN=2"),
        error("fence granted twice", 12, "FENCE_REUSED"),
        error("block kept after the release", 12, "BLOCK_KEPT"),
        error("late block of an ended hold", 12, "BLOCK_OF_THE_ENDED", "FENCES=9"),
        error("ended hold handed on", 3, "ENDED_HANDED_ON"),
        error("deadline from the hand-off", 1, "DEADLINE_FROM_HAND_OFF"),
        error("deadline from the reply", 1, "DEADLINE_FROM_NOW"),
        error("no end of hand-offs", 17, "NO_BOUND"),
        error("newcomer ignores the queue", 17, "QUEUE_IGNORED"),
        error("turn without end", 18, "TURN_FOR_EVER", "LIVE"),
        error("words alone, no looks", 18, "NO_POLL", "LIVE"),
        limit("passed by before the word has come", 17, "FROM_PLACE"),
    ],
}


class Failure(Exception):
    """What to say about a run that told nothing."""


def call(words, folder):
    done = subprocess.run(words, cwd=folder, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def defined(macros):
    return [f"-D{macro if '=' in macro else macro + '=1'}" for macro in macros]


def build(model, macros, folder, memory, *options):
    defines = defined(macros)
    text = (HERE / f"{model}.pml").read_text(encoding="utf-8")
    for macro in macros:
        name = macro.partition("=")[0]
        if not re.search(rf"^#\s*if.*\b{name}\b", text, re.MULTILINE):
            raise Failure(f"{model}.pml does not ask for {name}")
    for words in (["spin", "-a", *defines, str(HERE / f"{model}.pml")],
                  ["gcc", "-w", "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={memory}", *options,
                   "-o", "pan", "pan.c"]):
        status, told = call(words, folder)
        if status or "Error" in told or not Path(folder, "pan.c").exists():
            raise Failure(f"{words[0]} failed:\n{told}")


def judge(told):
    """What pan said: HOLDS, or the invariant that broke. A search that was not complete is neither."""
    broken = re.search(r"assertion violated \(broken!=(\d+)\)", told)
    if broken:
        return int(broken[1])
    cut = re.search(r".*(?:max search depth|out of memory|not completed|reached -DMEMLIM).*", told)
    if cut or "errors: 0" not in told:
        raise Failure(f"not searched wholly: {cut[0].strip() if cut else told}")
    idle = [line for line in re.findall(r'^\t.*, state \d+, "(.*)"$', told, re.MULTILINE)
            if line != "-end-"]
    if idle:
        raise Failure(f"a step that is never taken: {idle[0]}")
    return HOLDS


def search(model, macros, options, *flags):
    with tempfile.TemporaryDirectory(prefix="model.") as folder:
        build(model, macros, folder, options.memory, *flags)
        begun = time.monotonic()
        _, told = call(["./pan", f"-m{options.depth}", "-w22"], folder)
        seconds = time.monotonic() - begun
        states = re.search(r"(\S+) states, stored", told)
        return judge(told), float(states[1]) if states else 0, seconds


def run(model, name, macros, expected, options):
    """One run, one line; true when it ended as it should."""
    # An error is found in less time than an optimised search is compiled in, and sooner when time
    # does not pass first.
    flags = ["-O0", "-DT_REVERSE"] if expected else ["-O1"]
    try:
        outcome, states, seconds = search(model, macros, options, *flags)
    except Failure as failure:
        print(f"{model}: {name}: FAILED: {failure}", flush=True)
        return False
    verdict = f"breaks I{outcome}" if outcome else "holds"
    if outcome != expected:
        verdict += f", FAILED: must {'break I%d' % expected if expected else 'hold'}"
    print(f"{model}: {name}: {states:.0f} states, {seconds:.1f} s, {verdict}", flush=True)
    return outcome == expected


def trace(model, macros, options):
    """Breadth first, so that the way is as short as can be."""
    defines = defined(macros)
    with tempfile.TemporaryDirectory(prefix="model.") as folder:
        build(model, macros, folder, options.memory, "-O2", "-DBFS")
        call(["./pan", "-w22"], folder)
        trail = next(Path(folder).glob("*.trail"), None)
        if not trail:
            sys.exit("no error was found")
        _, told = call(["spin", "-p", "-g", "-k", str(trail), *defines,
                        str(HERE / f"{model}.pml")], folder)
        options.trace.write_text(told, encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(RUNS))
    parser.add_argument("-D", dest="macros", action="append", metavar="NAME[=VALUE]",
                        help="a bound or an error; then this one run only")
    parser.add_argument("--depth", type=int, default=2_000_000, help="of the search, in steps")
    parser.add_argument("--memory", type=int, default=1500, help="in MiB, the most")
    parser.add_argument("--trace", type=Path, metavar="FILE")
    return parser.parse_args()


def main():
    options = arguments()
    for tool in ("spin", "gcc"):
        if not shutil.which(tool):
            print(f"{tool} is not installed: ./quickstart.sh --test-deps installs what tests need")
            print("0 passed, 1 failed")
            return 1
    if options.trace:
        trace(options.model, options.macros or [], options)
        return 0
    runs = RUNS[options.model]
    if options.macros:
        runs = [good(" ".join(options.macros), *options.macros)]
    results = [run(options.model, *one, options) for one in runs]
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
