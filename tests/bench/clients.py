"""Many clients, waiters and locks: what memory they take, and how the cost grows with their number."""

import json
import math
import time

import cases
import holding
import measure
import servers

KEY = "bench:many"
MANY_CONNECTIONS = {"connections_max": 50000}


def owner(number):
    return f"w{number}"


def open_idle(path, n):
    """Connections that have asked something once, as a program does that uses locks now and then."""
    lines = [servers.Line(path) for _ in range(n)]
    asked = [line.send("ping") for line in lines]
    for line, request in zip(lines, asked):
        line.answer(request)
    return lines


def queue(broker, line, n):
    """n requests that wait for one lock, on one connection, without an answer so far."""
    text = "".join(json.dumps({"id": number, "op": "acquire", "key": KEY, "owner": owner(number),
                               "wait_ms": -1}) + "\n" for number in range(n))
    line.sock.sendall(text.encode())
    servers.lockbroker.wait_until(lambda: broker.line.call("query", key=KEY)["waiters"] >= n,
                                  "all are queued", servers.ANSWER_S)


def serve_all(line, n):
    """Each waiter that gets the lock gives it back at once."""
    granted = 0
    released = 0
    while released < n:
        reply = json.loads(line.line())
        if not reply.get("ok"):
            raise measure.Failed(f"the broker said {reply}")
        if reply.get("outcome"):
            released += 1
            continue
        granted += 1
        release = {"id": n + granted, "op": "release", "key": KEY, "owner": owner(reply["id"])}
        line.sock.sendall(json.dumps(release).encode() + b"\n")


def memory_of_waiters(setting, n):
    n = setting.scaled(n)
    with servers.World(setting.programs) as world:
        broker = world.brokers(1)[0]
        holder, waiters = servers.Line(broker.path), servers.Line(broker.path)
        holder.call("acquire", key=KEY)
        empty_kb = servers.rss_kb(broker.pid)
        queue(broker, waiters, n)
        found = {"n": n, "kb_each": (servers.rss_kb(broker.pid) - empty_kb) / n}
        holder.close()
        waiters.close()
    return found


def memory_of_connections(setting, n):
    n = setting.scaled(n)
    with servers.World(setting.programs) as world:
        broker = world.brokers(1, **MANY_CONNECTIONS)[0]
        empty_kb = servers.rss_kb(broker.pid)
        lines = open_idle(broker.path, n)
        found = {"n": n, "kb_each": (servers.rss_kb(broker.pid) - empty_kb) / n}
        for line in lines:
            line.close()
    return found


def memory_of_locks(setting, n):
    n = setting.scaled(n)
    with servers.World(setting.programs) as world:
        broker = world.brokers(1)[0]
        empty_kb = servers.rss_kb(broker.pid)
        with holding.holding(setting, world, cases.PEERS["lockbroker"], [broker], n, 30000) as holder:
            found = {"n": n, "kb_each": (servers.rss_kb(broker.pid) - empty_kb) / n}
            holder.end()
    return found


class Idle:
    """Two daemons, one of them with idle clients: the busy are to notice nothing."""

    def __init__(self, setting, world, n):
        self.setting = setting
        self.world = world
        self.n = setting.scaled(n)
        self.quiet = world.brokers(1, name="quiet", **MANY_CONNECTIONS)
        self.crowded = world.brokers(1, name="crowded", **MANY_CONNECTIONS)
        empty_kb = servers.rss_kb(self.crowded[0].pid)
        self.lines = open_idle(self.crowded[0].path, self.n)
        self.kb = (servers.rss_kb(self.crowded[0].pid) - empty_kb) / self.n

    def measure(self, case, label, number):
        is_crowded = label == "with idle clients"
        found = measure.load(self.setting, self.world, case, cases.PEERS["lockbroker"],
                             f"bench:idle:{label}:{number}",
                             self.crowded if is_crowded else self.quiet)
        return found | ({"n": self.n, "kb_per_connection": self.kb} if is_crowded else {})

    def close(self):
        for line in self.lines:
            line.close()


def cpu_of_locks(setting, world, n):
    """All acquired, and all given back since their client ends."""
    broker = world.brokers(1)[0]
    before = servers.cpu_ns(broker.pid)
    with holding.holding(setting, world, cases.PEERS["lockbroker"], [broker], n, 30000) as holder:
        holder.end()
    while broker.stats()["gauges"]["locks"] > 0:
        time.sleep(0.02)
    return servers.cpu_ns(broker.pid) - before


def cpu_of_renewals(setting, world, n):
    """All renewed once, as the time that it took for those that were."""
    broker = world.brokers(1)[0]
    with holding.holding(setting, world, cases.PEERS["lockbroker"], [broker], n, 3000) as holder:
        before = broker.usage()
        time.sleep(1)
        after = broker.usage()
        holder.end()
    renewals = after["counters"]["renewals"] - before["counters"]["renewals"]
    if not renewals:
        raise measure.Failed("nothing was renewed within a second")
    return (after["cpu_ns"] - before["cpu_ns"]) * n / renewals


def cpu_of_waiters(_, world, n):
    """All queue up for one lock, and have it in turn."""
    broker = world.brokers(1)[0]
    holder, waiters = servers.Line(broker.path), servers.Line(broker.path)
    holder.call("acquire", key=KEY)
    before = servers.cpu_ns(broker.pid)
    queue(broker, waiters, n)
    holder.call("release", key=KEY)
    serve_all(waiters, n)
    holder.close()
    waiters.close()
    return servers.cpu_ns(broker.pid) - before


def cpu_of_clients(_, world, n):
    """All connect, have a lock of their own for a moment, all at a time, and end."""
    broker = world.brokers(1, **MANY_CONNECTIONS)[0]
    before = servers.cpu_ns(broker.pid)
    lines = [servers.Line(broker.path) for _ in range(n)]
    for op in ("acquire", "release"):
        asked = [line.send(op, key=f"{KEY}:{number}") for number, line in enumerate(lines)]
        for line, request in zip(lines, asked):
            line.answer(request)
    for line in lines:
        line.close()
    while broker.stats()["gauges"]["connections"] > 1:
        time.sleep(0.02)
    return servers.cpu_ns(broker.pid) - before


GROWTHS = {
    "locks": (cpu_of_locks, (100, 1000, 10000, 100000)),
    "renewals": (cpu_of_renewals, (100, 1000, 10000, 100000)),
    "waiters": (cpu_of_waiters, (100, 1000, 10000)),
    "clients": (cpu_of_clients, (100, 1000, 10000)),
}


def growth(setting, kind, n, before):
    """The daemon's CPU time for n of a kind, and how its growth compares with that of n log n.

    `before` is what was found for a tenth of them, in the same round.
    """
    with servers.World(setting.programs) as world:
        cpu_us = GROWTHS[kind][0](setting, world, n) / 1000
    found = {"n": n, "daemon_cpu_ms": cpu_us / 1000, "daemon_cpu_us_each": cpu_us / n}
    if before:
        expected = n * math.log(n) / (before["n"] * math.log(before["n"]))
        found["growth_to_n_log_n"] = found["daemon_cpu_ms"] / before["daemon_cpu_ms"] / expected
    return found
