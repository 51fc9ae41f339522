"""Figures from the records of a run: each is defined once, here, for all peers.

A record is five 64-bit numbers: contender, asked, granted, releasing, released, all times in ns of
one clock. A load program is told of no warm-up, and writes all cycles from the first one on: else the
holders whose asking was part of the warm-up would be missing between two others. What counts is
when the lock was granted: within the span that is measured.
"""

import math
from array import array

FIELDS = 5
QUANTILES = (*range(100), 99.5, 99.9, 100)


class Records:
    """Five columns, sorted by when the lock was granted."""

    def __init__(self, rows):
        rows = sorted(rows, key=lambda row: row[2])
        self.count = len(rows)
        columns = zip(*rows) if rows else [()] * FIELDS
        (self.contender, self.asked, self.granted, self.releasing,
         self.released) = (array("q", column) for column in columns)


def read(path):
    numbers = array("q")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    if len(numbers) % FIELDS:
        raise ValueError(f"{path}: {len(numbers)} numbers are no whole records")
    return Records(zip(*(numbers[field::FIELDS] for field in range(FIELDS))))


def percentile(ordered, percent):
    """The nearest rank: the least of the values that so many percent of them do not exceed."""
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def quantiles(values):
    """From the least to the largest, a hundredth at a time and at the end finer, for a plot."""
    ordered = sorted(values)
    return [percentile(ordered, percent) for percent in QUANTILES] if ordered else []


def spread(name, values, unit_ns, percents=(50, 90, 99)):
    """Percentiles and the largest, in a unit, as figures with the names that they are known by."""
    if not values:
        return {}
    unit = {1000: "us", 1000000: "ms"}[unit_ns]
    ordered = sorted(values)
    figures = {f"{name}_p{percent}_{unit}": percentile(ordered, percent) / unit_ns
               for percent in percents}
    figures[f"{name}_max_{unit}"] = ordered[-1] / unit_ns
    return figures


def jain(shares):
    """Jain's index: 1 when all have the same share, 1/n when one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def gaps(records, daemons=0, began_ns=0):
    """From the releasing of one contender to the grant of another; a time below 0 is an overlap.

    Who gets the lock again itself hands nothing on. With several daemons contender i uses the i-th,
    modulo their number, and only what goes from one daemon to another counts.
    """
    who = [contender % daemons for contender in records.contender] if daemons else records.contender
    return [records.granted[i] - records.releasing[i - 1] for i in range(1, records.count)
            if who[i] != who[i - 1] and records.granted[i] >= began_ns]


def overlaps(records):
    """Grants that came before every earlier holder had begun to release."""
    found = 0
    latest = None
    for granted, releasing in zip(records.granted, records.releasing):
        if latest is not None and granted < latest:
            found += 1
        latest = releasing if latest is None else max(latest, releasing)
    return found


def overlaps_by_contender(records):
    """The same where each contender has a key of its own: it would be a defect of the load program."""
    latest = {}
    found = 0
    for contender, granted, releasing in zip(records.contender, records.granted, records.releasing):
        found += granted < latest.get(contender, granted)
        latest[contender] = releasing
    return found


def unserved(records, contenders, began_ns, ended_ns):
    """How long those that wait at the end did so far.

    Else those that starve would be left out, and a lock that starves many would look fast.
    """
    since = [began_ns] * contenders
    for contender, released in zip(records.contender, records.released):
        since[contender] = released
    return [ended_ns - last for last in since if last < ended_ns]


def within(records, began_ns, ended_ns):
    """Those whose grant counts."""
    return Records(row for row in zip(records.contender, records.asked, records.granted,
                                      records.releasing, records.released)
                   if began_ns <= row[2] <= ended_ns)


def latencies(records):
    asked, granted = records.asked, records.granted
    releasing, released = records.releasing, records.released
    acquire = [g - a for a, g in zip(asked, granted)]
    release = [d - r for r, d in zip(releasing, released)]
    return acquire, release, [a + r for a, r in zip(acquire, release)]


def figures(records, contenders, began_ns, ended_ns, one_key, daemons=1):
    """All figures of a run, of which the span from `began` to `ended` is measured.

    Without a cycle in it there are those alone that say so.
    """
    counted = within(records, began_ns, ended_ns)
    acquire, release, cycle = latencies(counted)
    grants = [0] * contenders
    for contender in counted.contender:
        grants[contender] += 1
    found = {
        "cycles": counted.count,
        "cycles_per_s": counted.count / ((ended_ns - began_ns) / 1e9),
        "jain": jain(grants),
        "contenders_without": grants.count(0),
        "overlaps": overlaps(records) if one_key else overlaps_by_contender(records),
    }
    found |= spread("acquire", acquire, 1000)
    found |= spread("release", release, 1000)
    found |= spread("cycle", cycle, 1000)
    if one_key and counted.count:
        waited = acquire + unserved(records, contenders, began_ns, ended_ns)
        found |= waiting(counted, waited, contenders)
        found |= handing_on(records, began_ns, ended_ns, daemons)
    return found


def waiting(counted, waited, contenders):
    """How long it takes to get a key that all want."""
    holds = sorted(r - g for g, r in zip(counted.granted, counted.releasing))
    found = spread("wait", waited, 1000000)
    found["wait_quantiles_ms"] = [round(wait / 1e6, 5) for wait in quantiles(waited)]
    # All others have it once in between, and handing it on takes no time.
    ideal_ns = (contenders - 1) * percentile(holds, 50)
    found["wait_ideal_ms"] = ideal_ns / 1e6
    if ideal_ns:
        found["wait_p99_to_ideal"] = percentile(sorted(waited), 99) / ideal_ns
    return found


def handing_on(records, began_ns, ended_ns, daemons):
    """How a key that all want goes from one to the next."""
    between = gaps(records, 0, began_ns)
    found = spread("gap", between, 1000, (50, 99))
    found["gap_quantiles_us"] = [round(gap / 1000, 3) for gap in quantiles(between)]
    found["handoffs_per_s"] = len(between) / ((ended_ns - began_ns) / 1e9)
    if daemons > 1:
        across = gaps(records, daemons, began_ns)
        found |= spread("gap_between_daemons", across, 1000, (50, 99))
        found["between_daemons_share"] = len(gaps(records, daemons)) / records.count
    return found
