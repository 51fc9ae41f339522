"""One run of a case for one peer: its figures, and what Redis, daemons and clients used meanwhile."""

import json
import os
import resource
import shutil
import subprocess
from dataclasses import dataclass

import cases
import records
import servers

HERE = os.path.dirname(os.path.abspath(__file__))
GRACE_S = 120  # how long a load program may take beside what it was told to run
NO_SHAPE = 3
SCRIPT_CALLS = ("evalsha", "eval", "evalsha_ro", "eval_ro")


class Skipped(Exception):
    """The peer does not have what is asked for, or what it needs is not there."""


class Failed(Exception):
    """Something is wrong, so that there is no figure."""


@dataclass(frozen=True)
class Setting:
    """How long and how often it is measured, and where programs are."""
    programs: str
    rounds: int
    warm_ms: int
    run_ms: int
    scene_rounds: int
    scale: float = 1  # of the numbers of locks and clients
    hold_s: float = 3  # how long held locks are looked at
    kills: int = 50
    lengthy: bool = False  # also the cases that take long and say little new
    languages: tuple = ("bench_load", "peer_redis_py.py", "peer_node.js")
    node_path: str = ""

    def scaled(self, n):
        """So many locks, waiters or clients, as far as this setting goes."""
        return max(int(n * self.scale), 1)

    def check(self, peer):
        """Raises Skipped for a peer that cannot be run here."""
        if peer.program not in self.languages:
            raise Skipped("left out")
        if peer.program == cases.NODE and not self.node_path:
            raise Skipped("node or its packages are not there")
        missing = dict(peer.options).keys() - servers.daemon_options(
            os.path.join(self.programs, "lockbrokerd"))
        if missing:
            raise Skipped(f"the daemon has no option {', '.join(missing)}")

    def argv(self, peer):
        if peer.program == cases.LOAD:
            return [os.path.join(self.programs, cases.LOAD)]
        interpreter = "/usr/bin/python3" if peer.program == cases.PYTHON else shutil.which("node")
        return [interpreter, os.path.join(HERE, peer.program)]

    def environment(self):
        return {**os.environ, "NODE_PATH": self.node_path, "PYTHONDONTWRITEBYTECODE": "1"}


def program_of(setting, peer, world, brokers, *words):
    argv = setting.argv(peer) + ["--peer", peer.known_as, "--redis", world.redis_address]
    for broker in brokers:
        argv += ["--broker", broker.path]
    return argv + [str(word) for word in words]


def start(setting, world, argv, **popen):
    with servers.pinned(world.cores):
        return subprocess.Popen(argv, env=setting.environment(), text=True,
                                stdout=subprocess.PIPE, **popen)


def run_program(setting, world, argv, timeout_s):
    """The line of JSON that it wrote, and the CPU time of it and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = start(setting, world, argv, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"no end within {timeout_s:.0f} s: {' '.join(argv)}") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode == NO_SHAPE:
        raise Skipped("it has no such shape")
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {err.strip()}: {' '.join(argv)}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(out), used


def usage(world, brokers):
    return {"redis": world.redis_usage(), "brokers": [broker.usage() for broker in brokers]}


def counted(before, after, name):
    """How much a counter of all daemons rose."""
    return sum(now["counters"][name] - then["counters"][name]
               for now, then in zip(after["brokers"], before["brokers"]))


def lateness(before, after, ttl_ms):
    """How late renewals were sent, as bounds of the daemons' histogram, and as a share of the margin."""
    found = {}
    for now, then in zip(after["brokers"], before["brokers"]):
        histogram = servers.less(now["histograms"]["renewal_late_ms"],
                                 then["histograms"]["renewal_late_ms"])
        for percent in (50, 99, 100):
            late_ms = servers.told(histogram, percent)
            name = f"late_p{percent}_ms" if percent < 100 else "late_max_ms"
            if late_ms is not None:
                found[name] = max(found.get(name, 0), late_ms)
    if found:
        found["margin_ms"] = servers.lockbroker.margin_ms(ttl_ms)
        found["late_max_to_margin"] = found["late_max_ms"] / found["margin_ms"]
    return found


def costs(peer, before, after, cycles, client_s):
    """What a cycle cost, of all, also those of the warm-up."""
    if not cycles:
        return {}
    redis_before, redis_after = before["redis"], after["redis"]
    sent = servers.calls_between(redis_before, redis_after, SCRIPT_CALLS + peer.direct)
    if peer.daemons:
        sent = counted(before, after, "redis_commands")
        cycles = counted(before, after, "granted")
    found = {
        "commands_per_cycle": sent / cycles,
        "redis_cpu_us_per_cycle": (redis_after["cpu_ns"] - redis_before["cpu_ns"]) / 1000 / cycles,
        "client_cpu_us_per_cycle": client_s * 1e6 / cycles,
    }
    if peer.daemons:
        used = sum(now["cpu_ns"] - then["cpu_ns"]
                   for now, then in zip(after["brokers"], before["brokers"]))
        found["daemon_cpu_us_per_cycle"] = used / 1000 / cycles
        found["handoffs_share"] = counted(before, after, "handoffs") / cycles
    return found


def load(setting, world, case, peer, key, brokers=None):
    """Runs the cycles of a case for a peer; returns its figures."""
    setting.check(peer)
    if brokers is None:
        brokers = world.brokers(peer.daemons, **dict(peer.options)) if peer.daemons else []
    run_ms = setting.warm_ms + int(setting.run_ms * case.length)
    path = world.path("records")
    argv = program_of(setting, peer, world, brokers, "--records", path, "--key", key,
                      "--contenders", case.contenders, "--shape", peer.shape or case.shape,
                      "--keys", "one" if case.one_key else "distinct", "--hold-us", case.hold_us,
                      "--ttl-ms", case.ttl_ms, "--run-ms", run_ms)
    before = usage(world, brokers)
    told, client_s = run_program(setting, world, argv, run_ms / 1000 + GRACE_S)
    after = usage(world, brokers)
    cycles = records.read(path)
    began_ns = told["began_ns"] + setting.warm_ms * 1000000
    found = records.figures(cycles, case.contenders, began_ns, told["ended_ns"], case.one_key,
                            max(peer.daemons, 1))
    found |= costs(peer, before, after, cycles.count, client_s)
    if found.get("between_daemons_share"):
        found["commands_per_handoff_between_daemons"] = \
            found["commands_per_cycle"] / found["between_daemons_share"]
    found |= lateness(before, after, case.ttl_ms)
    found |= {"errors": sum(told["errors"].values()), "lost": told["lost"]}
    if told["errors"]:
        found["error_names"] = told["errors"]
    return found
