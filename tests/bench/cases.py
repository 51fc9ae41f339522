"""The table of what is measured: the peers, the cases with load, and the targets.

Cases without a load of cycles (locks that are only held, kills, idle clients, memory, growth) are
in scenes.py; their targets are here too, so that all are in one place.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A way to have locks, under the name that the tables show."""
    label: str
    program: str
    name: str = ""  # as the load program knows it, where that is another one
    daemons: int = 0
    options: tuple = ()  # of the daemons, as (name, value)
    direct: tuple = ()  # the commands that it sends outside of scripts, and that no script of it has
    renews_after: float = 1 / 3  # of the ttl
    shape: str = ""  # where it has but one, or its users would use but one

    @property
    def known_as(self):
        return self.name or self.label


LOAD, PYTHON, NODE = "bench_load", "peer_redis_py.py", "peer_node.js"

PEERS = {peer.label: peer for peer in (
    Peer("lockbroker", LOAD, daemons=1),
    Peer("lockbroker-linger", LOAD, "lockbroker", daemons=1, options=(("linger", "5ms"),)),
    Peer("lockbroker-2", LOAD, "lockbroker", daemons=2),
    Peer("lockbroker-4", LOAD, "lockbroker", daemons=4),
    Peer("lockbroker-py", PYTHON, daemons=1),
    Peer("raw", LOAD, direct=("set",)),
    Peer("raw-fence", LOAD),
    Peer("blpop", LOAD, direct=("set", "blpop")),
    Peer("flock", LOAD),
    Peer("redis-py", PYTHON, direct=("set",)),
    Peer("redis-py-50ms", PYTHON, direct=("set",)),
    Peer("redis-py-thread", PYTHON, direct=("set",)),
    Peer("redlock", NODE, shape="connections"),
    Peer("redis-semaphore", NODE, direct=("set",), renews_after=0.8, shape="connections"),
)}


@dataclass(frozen=True)
class Target:
    """What lockbroker is to reach: a figure, as it is or as the ratio to another peer's."""
    figure: str
    limit: float
    against: str = ""  # the peer of the ratio; several, with blanks between: the best of them
    at_least: bool = False  # else at most
    peer: str = "lockbroker"


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    peers: tuple
    reference: str
    contenders: int
    shape: str = "processes"
    one_key: bool = False
    hold_us: int = 0
    ttl_ms: int = 10000
    cores: int = 1  # 0: all
    tcp: bool = False
    length: float = 1  # runs are so much longer than others, where waits are long
    targets: tuple = ()


def at_most(figure, limit, against="", peer="lockbroker"):
    return Target(figure, limit, against, False, peer)


def at_least(figure, limit, against="", peer="lockbroker"):
    return Target(figure, limit, against, True, peer)


ALONE = ("lockbroker", "lockbroker-linger", "lockbroker-py", "raw", "raw-fence", "redis-py",
         "redlock", "redis-semaphore")
EIGHT = ("lockbroker", "lockbroker-py", "raw", "raw-fence", "redis-py")
FLOWS = ("lockbroker", "lockbroker-linger", "raw", "raw-fence", "redlock", "redis-semaphore")
HOT = ("lockbroker", "lockbroker-py", "flock", "blpop", "redis-py", "redis-py-50ms", "redlock",
       "redis-semaphore")
BROKERS = ("lockbroker", "lockbroker-2", "lockbroker-4", "blpop", "redis-py")
DIRECT = "blpop redis-py redis-py-50ms redlock redis-semaphore"  # whom a hot key is compared with

LOADS = (
    Case("alone", "1 contender, nobody else wants the lock", ALONE, "raw-fence", 1, targets=(
        at_most("cycle_p50_us", 2.3, "raw-fence"),
        at_most("cycle_p50_us", 1.15, "redis-py", "lockbroker-py"),
        at_most("cycle_p50_us", 1.0, "raw", "lockbroker-linger"))),
    Case("alone-tcp", "1 contender, Redis by TCP", ALONE, "raw-fence", 1, tcp=True),
    Case("distinct-8", "8 processes, a lock each", EIGHT, "raw-fence", 8),
    Case("distinct-8-connections", "8 contenders of one process, a lock each", FLOWS, "raw-fence", 8,
         "connections", targets=(at_least("cycles_per_s", 0.9, "raw-fence"),)),
    Case("distinct-8-tcp", "8 processes, a lock each, Redis by TCP", EIGHT, "raw-fence", 8, tcp=True),
    Case("distinct-64", "64 processes, a lock each", EIGHT, "raw-fence", 64),
    Case("distinct-64-connections", "64 contenders of one process, a lock each", FLOWS, "raw-fence",
         64, "connections", targets=(at_least("cycles_per_s", 1.3, "raw-fence"),
                                     at_least("cycles_per_s", 1.0, "redis-semaphore"))),
    Case("distinct-64-tcp", "64 contenders of one process, a lock each, Redis by TCP", FLOWS,
         "raw-fence", 64, "connections", tcp=True),
    Case("hot-8", "8 processes, one lock, held for 2 ms", HOT, "flock", 8, one_key=True,
         hold_us=2000, targets=(
             at_least("cycles_per_s", 0.97, "flock"), at_most("gap_p50_us", 70),
             at_most("overlaps", 0))),
    Case("hot-100", "100 processes, one lock, held for 2 ms", HOT, "flock", 100, one_key=True,
         hold_us=2000, length=5, targets=(
             at_most("wait_p99_to_ideal", 1.05), at_least("jain", 0.99))),
    Case("hot-8-empty", "8 processes, one lock, given back at once", HOT, "blpop", 8, one_key=True,
         targets=(at_least("handoffs_per_s", 6, DIRECT),
                  at_most("commands_per_cycle", 0.02))),
    Case("hot-100-empty", "100 processes, one lock, given back at once", HOT, "blpop", 100,
         one_key=True,
         targets=(at_least("handoffs_per_s", 10, DIRECT),
                  at_most("commands_per_cycle", 0.02))),
    Case("relay-2", "2 processes, one lock, held for 2 ms; a daemon each", BROKERS, "blpop", 2,
         one_key=True, hold_us=2000, targets=(
             at_most("gap_between_daemons_p50_us", 250, peer="lockbroker-2"),
             at_most("commands_per_handoff_between_daemons", 4, peer="lockbroker-2"))),
    Case("relay-4", "4 processes, one lock, held for 2 ms; a daemon each", BROKERS, "blpop", 4,
         one_key=True, hold_us=2000, targets=(
             at_most("gap_between_daemons_p50_us", 250, peer="lockbroker-4"),
             at_most("commands_per_handoff_between_daemons", 4, peer="lockbroker-4"))),
    Case("relay-8", "8 processes, one lock, held for 2 ms; two or four daemons", BROKERS, "blpop", 8,
         one_key=True, hold_us=2000, targets=(
             at_most("gap_between_daemons_p50_us", 250, peer="lockbroker-2"),
             at_most("gap_between_daemons_p50_us", 250, peer="lockbroker-4"))),
)

# The targets of the cases in scenes.py.
SCENE_TARGETS = {
    "hold-10000-ttl3": (at_most("daemon_cpu_percent", 1.5), at_most("kb_per_lock", 0.6),
                        at_most("lost", 0), at_most("redis_us_per_renewal", 2.5),
                        at_most("late_max_to_margin", 0.25)),
    "hold-100000-ttl30": (at_most("daemon_cpu_percent", 4), at_most("lost", 0),
                          at_most("late_max_to_margin", 0.25)),
    "stall": (at_most("ping_p99_us", 500),),
    "busy": (at_most("late_max_to_margin", 0.25, peer="with renewals"),
             at_most("lost", 0, peer="with renewals")),
    "growth": tuple(at_most("growth_to_n_log_n", 1.5, peer=peer) for peer in (
        "100000 locks", "100000 renewals", "10000 waiters", "10000 clients")),
    "memory": (at_most("kb_each", 0.6, peer="a lock"), at_most("kb_each", 1.5, peer="a connection")),
    "kill": (at_most("grant_p50_us", 1000),),
    "idle": (at_most("kb_per_connection", 1.5, peer="with idle clients"),
             at_least("cycles_per_s", 0.95, "without", "with idle clients")),
}


def peers_named(names, results):
    """Those of a target's peers for which there are results; a name of a scene may have a blank."""
    return [names] if names in results else [name for name in names.split() if name in results]
