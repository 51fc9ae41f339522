"""The cases that are no load of cycles: the table of them, and the rounds of each."""

from dataclasses import dataclass
from typing import Callable

import cases
import clients
import holding
import servers

BUSY = next(case for case in cases.LOADS if case.name == "distinct-64-connections")
CROWD = next(case for case in cases.LOADS if case.name == "distinct-8-connections")
MANY = 10000


@dataclass(frozen=True)
class Scene:
    name: str
    title: str
    reference: str
    measure: Callable  # of the run and the scene
    n: int = MANY
    ttl_ms: int = 3000
    peers: tuple = ()
    lengthy: bool = False


def measure_hold(run, scene):
    run.in_turn(scene, run.setting.scene_rounds, lambda label, _: holding.hold(
        run.setting, cases.PEERS[label], scene.n, scene.ttl_ms))


def measure_stall(run, scene):
    peers = {"no locks": None, "lockbroker": cases.PEERS["lockbroker"],
             "redis-semaphore": cases.PEERS["redis-semaphore"]}
    run.in_turn(scene, run.setting.scene_rounds, lambda label, _: holding.stall(
        run.setting, peers[label], scene.n, scene.ttl_ms))


def measure_busy(run, scene):
    counts = {"without": 0, "with renewals": scene.n}
    with servers.World(run.setting.programs, cores=1) as world:
        run.in_turn(scene, run.setting.scene_rounds, lambda label, number: holding.busy(
            run.setting, world, BUSY, cases.PEERS["lockbroker"], counts[label], number))


def measure_kill(run, scene):
    run.in_turn(scene, run.setting.scene_rounds,
                lambda label, _: holding.kill(run.setting, cases.PEERS[label]))


def measure_idle(run, scene):
    with servers.World(run.setting.programs, cores=1) as world:
        idle = clients.Idle(run.setting, world, scene.n)
        try:
            run.in_turn(scene, run.setting.scene_rounds,
                        lambda label, number: idle.measure(CROWD, label, number))
        finally:
            idle.close()


def measure_memory(run, scene):
    acts = {"a lock": clients.memory_of_locks, "a waiter": clients.memory_of_waiters,
            "a connection": clients.memory_of_connections}
    for label in scene.peers:
        run.add(scene.name, label, 0, lambda label=label: acts[label](run.setting, scene.n))


def measure_growth(run, scene):
    """Larger after smaller, so that each is compared with a tenth of it in the same round."""
    for number in range(run.setting.scene_rounds):
        for kind, (_, counts) in clients.GROWTHS.items():
            for n in counts:
                if n > scene.n * run.setting.scale:
                    continue
                label = f"{n} {kind}"
                rounds = run.results.get(scene.name, {}).get(f"{n // 10} {kind}", [])
                before = next((each for each in rounds if each["round"] == number), None)
                run.add(scene.name, label, number, lambda kind=kind, n=n, before=before:
                        clients.growth(run.setting, kind, n, before))


PEERS_OF_HOLD = ("lockbroker", "redis-semaphore", "redis-py-thread")
SCENES = (
    Scene("hold-1000-ttl3", "1,000 locks held, each renewed every second", "lockbroker",
          measure_hold, 1000, 3000, PEERS_OF_HOLD),
    Scene("hold-10000-ttl3", "10,000 locks held, each renewed every second", "lockbroker",
          measure_hold, 10000, 3000, ("lockbroker", "redis-semaphore")),
    Scene("hold-100000-ttl3", "100,000 locks held, each renewed every second", "lockbroker",
          measure_hold, 100000, 3000, ("lockbroker",)),
    Scene("hold-1000-ttl30", "1,000 locks held, each renewed every 10 s", "lockbroker",
          measure_hold, 1000, 30000, ("lockbroker",), lengthy=True),
    Scene("hold-10000-ttl30", "10,000 locks held, each renewed every 10 s", "lockbroker",
          measure_hold, 10000, 30000, ("lockbroker",), lengthy=True),
    Scene("hold-100000-ttl30", "100,000 locks held, each renewed every 10 s", "lockbroker",
          measure_hold, 100000, 30000, ("lockbroker",)),
    Scene("stall", "a third party's PING while 10,000 locks are renewed every second", "no locks",
          measure_stall, peers=("no locks", "lockbroker", "redis-semaphore")),
    Scene("busy", "10,000 locks renewed every second at a daemon that is busy with 64 contenders, "
          "one core", "without", measure_busy, peers=("without", "with renewals")),
    Scene("kill", "kill -9 of a holder, until who waits at the same daemon has the lock",
          "lockbroker", measure_kill, peers=("lockbroker",)),
    Scene("idle", "8 contenders at a daemon with 10,000 idle clients and at one without",
          "without", measure_idle, peers=("without", "with idle clients")),
    Scene("memory", "memory of the daemon", "", measure_memory,
          peers=("a lock", "a waiter", "a connection")),
    Scene("growth", "CPU time of the daemon as the number grows tenfold", "", measure_growth, 100000),
)


def titles():
    return [(scene.name, scene.title) for scene in SCENES]
