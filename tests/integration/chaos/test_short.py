"""Chaos for about a minute, of a fixed seed and of a fresh one; and a client that must be caught.

CHAOS_SECONDS and CHAOS_SEED set the length and the seed of one run instead of the two.
"""

import run

SECONDS = 25
FIXED = 20240229


def seeds():
    seed, seconds = run.settings()
    if seed is not None or seconds is not None:
        return [run.fresh_seed() if seed is None else seed]
    return [FIXED, run.fresh_seed()]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds())


def test_nothing_goes_wrong(seed):
    verdict = run.chaos(seed, run.settings()[1] or SECONDS)
    assert verdict.is_good, "\n".join(verdict.lines())


def test_clients_that_rely_too_long_are_seen():
    """The same machinery, with clients that mind neither `lost` nor their deadlines."""
    verdict = run.chaos(FIXED, 8, names=["broker_killed"], flaw="relies_too_long")
    assert verdict.wrong["overlaps"]
