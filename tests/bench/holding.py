"""Locks that are held and renewed: what that costs, how late it is, and whom it disturbs."""

import contextlib
import gc
import json
import os
import select
import socket
import subprocess
import time
from dataclasses import replace

import measure
import records
import servers

TOLD_S = 180  # how long it may take to acquire a hundred thousand locks
PING_EACH_NS = 1000000


class Holder:
    """A load program that holds locks until it is told to end."""

    def __init__(self, setting, world, peer, brokers, n, ttl_ms, key="bench:hold"):
        setting.check(peer)
        argv = measure.program_of(setting, peer, world, brokers, "--key", key,
                                  "--hold-many", n, "--ttl-ms", ttl_ms)
        self.process = measure.start(setting, world, argv, stdin=subprocess.PIPE)
        self.told = self._line()

    @property
    def pid(self):
        return self.process.pid

    def _line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], TOLD_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.kill()
            raise measure.Failed(f"the holder told nothing; its exit code is {self.process.returncode}")
        return json.loads(line)

    def end(self):
        """Returns how many locks were lost."""
        self.process.stdin.close()
        lost = self._line()["lost"]
        self.process.stdout.close()
        self.process.wait(measure.GRACE_S)
        return lost

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def holding(setting, world, peer, brokers, n, ttl_ms, **options):
    """Something that holds n locks, killed if what is done meanwhile fails."""
    holder = Holder(setting, world, peer, brokers, n, ttl_ms, **options)
    try:
        if holder.told["held"] != n:
            raise measure.Failed(f"holds {holder.told} of {n}")
        yield holder
    finally:
        if holder.process.returncode is None:
            holder.kill()


def first_lock_kb(setting, world, peer, ttl_ms):
    """The memory of a load program of a peer that holds one lock."""
    with holding(setting, world, peer, [], 1, ttl_ms, key="bench:first") as holder:
        return servers.rss_kb(holder.pid)


def window_s(setting, peer, ttl_ms):
    """Whole periods of renewals, so that each lock is renewed equally often."""
    period_s = ttl_ms / 1000 * peer.renews_after
    if setting.scale < 1:
        return setting.hold_s
    return period_s * max(1, round(setting.hold_s / period_s))


def percent(after, before, seconds):
    return (after["cpu_ns"] - before["cpu_ns"]) / 1e7 / seconds


def renewing(peer, before, after, ttl_ms):
    """What a renewal cost Redis, and how late it was."""
    redis = before["redis"], after["redis"]
    calls = servers.calls_between(*redis, measure.SCRIPT_CALLS)
    if peer.daemons:
        renewals = measure.counted(before, after, "renewals")
        calls = measure.counted(before, after, "redis_renewal_calls")
    else:
        renewals = calls
    found = {"renewals": renewals}
    if renewals:
        found["redis_us_per_renewal"] = servers.usec_between(*redis, measure.SCRIPT_CALLS) / renewals
        found["commands_per_1000_renewals"] = calls * 1000 / renewals
        found |= measure.lateness(before, after, ttl_ms)
    return found


def look(setting, world, peer, brokers, holder, ttl_ms):
    """What it costs to hold the locks for a while."""
    world.redis_forget()
    before = measure.usage(world, brokers)
    before["client"] = {"cpu_ns": servers.cpu_ns(holder.pid)}
    began = time.monotonic()
    time.sleep(window_s(setting, peer, ttl_ms))
    seconds = time.monotonic() - began
    after = measure.usage(world, brokers)
    after["client"] = {"cpu_ns": servers.cpu_ns(holder.pid)}
    found = {f"{name}_cpu_percent": percent(after[name], before[name], seconds)
             for name in ("redis", "client")}
    for now, then in zip(after["brokers"], before["brokers"]):
        found["daemon_cpu_percent"] = percent(now, then, seconds)
    found |= renewing(peer, before, after, ttl_ms) | world.redis_script_times()
    if found["renewals"]:
        local_percent = found["client_cpu_percent"] + found.get("daemon_cpu_percent", 0)
        found["cpu_us_per_renewal"] = local_percent * 1e4 * seconds / found["renewals"]
    return found


def hold(setting, peer, n, ttl_ms):
    """Holds n locks in a world of their own, since memory that was used once is not given back."""
    n = setting.scaled(n)
    setting.check(peer)
    with servers.World(setting.programs) as world:
        brokers = world.brokers(peer.daemons) if peer.daemons else []
        empty_kb = servers.rss_kb(brokers[0].pid) if brokers else \
            first_lock_kb(setting, world, peer, ttl_ms)
        began = time.monotonic()
        with holding(setting, world, peer, brokers, n, ttl_ms) as holder:
            found = {"n": n, "acquire_all_s": time.monotonic() - began}
            keeper = brokers[0].pid if brokers else holder.pid
            found["kb_per_lock"] = (servers.rss_kb(keeper) - empty_kb) / n
            found |= look(setting, world, peer, brokers, holder, ttl_ms)
            found["lost"] = holder.end()
    return found


def ping_latencies(path, seconds):
    """How long each PING of a third party took, asked once a millisecond."""
    taken = []
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        gc.disable()
        due = time.monotonic_ns()
        end = due + int(seconds * 1e9)
        while due < end:
            time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
            asked = time.monotonic_ns()
            sock.sendall(b"PING\r\n")
            sock.recv(64)
            taken.append(time.monotonic_ns() - asked)
            due = max(due + PING_EACH_NS, time.monotonic_ns())
        gc.enable()
    return taken


def stall(setting, peer, n, ttl_ms):
    """The latency of a third party at Redis while locks are renewed; with no peer, of itself."""
    n = setting.scaled(n)
    with servers.World(setting.programs) as world:
        brokers = world.brokers(peer.daemons) if peer and peer.daemons else []
        held = holding(setting, world, peer, brokers, n, ttl_ms) if peer else contextlib.nullcontext()
        with held as holder:
            taken = ping_latencies(world.redis.path, setting.hold_s)
            lost = holder.end() if holder else 0
    found = records.spread("ping", taken, 1000) | {"lost": lost}
    found["ping_quantiles_us"] = [taken_ns / 1000 for taken_ns in records.quantiles(taken)]
    return found


def busy(setting, world, case, peer, n, number):
    """Renewals of many locks at a daemon that is busy with others, all on one core."""
    case = replace(case, length=setting.hold_s * 1000 / setting.run_ms)
    n = int(n * setting.scale)
    brokers = world.brokers(1)
    key = f"bench:busy:{n}:{number}"
    if not n:
        return measure.load(setting, world, case, peer, key, brokers) | {"n": n}
    with holding(setting, world, peer, brokers, n, 3000) as holder:
        before = measure.usage(world, brokers)
        found = measure.load(setting, world, case, peer, key, brokers) | {"n": n}
        after = measure.usage(world, brokers)
        found |= measure.lateness(before, after, 3000)
        found["renewals"] = measure.counted(before, after, "renewals")
        found["lost"] += holder.end()
    return found


def kill(setting, peer):
    """From the kill of a holder to the grant of one who waits at the same daemon."""
    taken = []
    with servers.World(setting.programs) as world:
        brokers = world.brokers(1)
        waiter = servers.Line(brokers[0].path)
        for _ in range(setting.kills):
            with holding(setting, world, peer, brokers, 1, 30000) as holder:
                request = waiter.send("acquire", key="bench:hold-0", wait_ms=-1)
                while brokers[0].line.call("query", key="bench:hold-0")["waiters"] == 0:
                    time.sleep(0.001)
                began = time.monotonic_ns()
                os.kill(holder.pid, 9)
                waiter.answer(request)
                taken.append(time.monotonic_ns() - began)
            waiter.call("release", key="bench:hold-0")
        waiter.close()
    return records.spread("grant", taken, 1000) | {"kills": len(taken)}
