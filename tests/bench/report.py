"""What was found, as JSON with all rounds and as tables: medians, ranges, ratios, targets."""

import json
import os
import platform
import re
import statistics
import subprocess

import cases
import scenes
import servers

DISTINCT = ("cycles_per_s", "cycle_p50_us", "cycle_p90_us", "cycle_p99_us", "cycle_max_us",
            "acquire_p50_us", "release_p50_us", "commands_per_cycle", "redis_cpu_us_per_cycle",
            "daemon_cpu_us_per_cycle", "client_cpu_us_per_cycle")
ONE_KEY = ("cycles_per_s", "handoffs_per_s", "gap_p50_us", "gap_p99_us", "wait_p50_ms",
           "wait_p99_ms", "wait_max_ms", "jain", "contenders_without", "gap_between_daemons_p50_us",
           "commands_per_cycle", "commands_per_handoff_between_daemons", "redis_cpu_us_per_cycle",
           "daemon_cpu_us_per_cycle")
HOLD = ("daemon_cpu_percent", "client_cpu_percent", "redis_cpu_percent", "cpu_us_per_renewal",
        "redis_us_per_renewal", "commands_per_1000_renewals", "script_p50_us", "script_p99_us",
        "script_p999_us", "kb_per_lock", "lost", "late_p50_ms", "late_p99_ms", "late_max_ms",
        "late_max_to_margin", "renewals", "acquire_all_s")
BUSY = ("cycles_per_s", "cycle_p50_us", "cycle_p99_us", "kb_per_connection", "late_p50_ms",
        "late_p99_ms", "late_max_ms", "late_max_to_margin", "renewals", "lost")
FIRST = {"alone": "cycle_p50_us", "alone-tcp": "cycle_p50_us", "stall": "ping_p99_us"}
LATE = cases.at_most("late_max_to_margin", 0.25)
OTHERS = re.compile(r"raw|redis|redlock|blpop|flock")
UNITS = {"us": "µs", "ms": "ms", "s": "s", "kb": "KB"}


def is_ours(label):
    """Whether a lost lock would be a defect of ours; in some cases a label is no peer."""
    return not OTHERS.match(label)


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shown(value):
    """Three digits that count."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def sketch(found):
    """A run in a few words, for who looks on."""
    names = ("cycles_per_s", "cycle_p50_us", "gap_p50_us", "wait_p99_ms", "daemon_cpu_percent",
             "kb_per_lock", "lost", "ping_p99_us", "grant_p50_us", "kb_each", "daemon_cpu_us_each",
             "late_max_ms", "errors")
    return ", ".join(f"{name} {shown(found[name])}" for name in names if name in found)


def figure_title(name):
    """The name of a figure for people: cycles_per_s, wait_p99_ms, redis_cpu_us_per_cycle."""
    if name.endswith("_per_s"):
        return name[:-6].replace("_", " ") + "/s"
    words = name.split("_")
    unit = next((word for word in words if word in UNITS), None)
    title = " ".join(word for word in words if word != unit).replace(" percent", ", %")
    return title + (f", {UNITS[unit]}" if unit else "")


def ratios(rounds, figure, others):
    """That of each round in which there are both, to the best of the others."""
    by_round = [{each["round"]: each[figure] for each in other if each.get(figure)} for other in others]
    return [(each["round"], each[figure], [other[each["round"]] for other in by_round
                                           if each["round"] in other])
            for each in rounds if is_figure(each.get(figure))]


def ratio(rounds, figure, others, at_least):
    """The median of each round's ratio to the best of the others in that round."""
    best = max if at_least else min
    found = [value / best(theirs) for _, value, theirs in ratios(rounds, figure, others) if theirs]
    return statistics.median(found) if found else None


def aggregate(rounds, reference):
    """By figure: the median, the range, and the ratio to the reference."""
    names = sorted({name for each in rounds for name in each if is_figure(each[name])} - {"round"})
    found = {}
    for name in names:
        values = [each[name] for each in rounds if name in each]
        found[name] = {"median": statistics.median(values), "least": min(values),
                       "largest": max(values),
                       "ratio": ratio(rounds, name, [reference], False) if reference else None}
    return found


def judge(target, case, results):
    """A target as a row: what it is, what was found, and whether that is good."""
    rounds = results.get(target.peer, [])
    values = [each[target.figure] for each in rounds if is_figure(each.get(target.figure))]
    row = {"case": case, "peer": target.peer, "figure": target.figure, "limit": target.limit,
           "against": target.against, "at_least": target.at_least, "median": None, "least": None,
           "largest": None, "ratio": None, "verdict": "not measured"}
    if not values:
        return row
    row |= {"median": statistics.median(values), "least": min(values), "largest": max(values)}
    judged = row["median"]
    if target.figure in ("lost", "overlaps"):
        judged = row["largest"]
    if target.against:
        others = [results[other] for other in cases.peers_named(target.against, results)]
        judged = row["ratio"] = ratio(rounds, target.figure, others, target.at_least)
        if judged is None:
            return row
    good = judged >= target.limit if target.at_least else judged <= target.limit
    return row | {"verdict": "ok" if good else "missed"}


def version_of(*words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return "not there"
    return (done.stdout or done.stderr).strip().split("\n")[0]


def package_versions(node_path):
    found = {}
    for name in ("ioredis", "redlock", "redis-semaphore"):
        try:
            with open(os.path.join(node_path, name, "package.json"), encoding="utf-8") as file:
                found[name] = json.load(file)["version"]
        except OSError:
            found[name] = "not there"
    return found


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"^model name\s*:\s*(.*)", file.read(), re.MULTILINE)
    return {"cpu": model[1] if model else platform.machine(), "cores": len(servers.ALL_CORES),
            "kernel": platform.release().split("-")[0],
            "system": platform.freedesktop_os_release()["PRETTY_NAME"]}


def versions(setting):
    import redis  # pylint: disable=import-outside-toplevel  # for its version alone
    return {"lockbrokerd": version_of(os.path.join(setting.programs, "lockbrokerd"), "--version"),
            "redis-server": re.search(r"v=(\S+)", version_of("redis-server", "--version"))[1],
            "python": platform.python_version(), "redis-py": redis.__version__,
            "node": version_of("node", "--version"), **package_versions(setting.node_path)}


def judge_lateness(results):
    """The latest renewal of all cases that had any."""
    rounds = [each | {"round": 0} for case in results.values() for peer in case.values()
              for each in peer if LATE.figure in each]
    row = judge(LATE, "every case", {LATE.peer: rounds})
    return row | {"verdict": "ok" if row["largest"] <= LATE.limit else "missed"} if rounds else row


def whole(run, options, took_s):
    every = [*cases.LOADS, *scenes.SCENES]
    found = {"length": options.length or "short", "took_s": round(took_s), "machine": machine(),
             "versions": versions(run.setting), "problems": run.problems, "skipped": run.skipped,
             "cases": {}, "targets": []}
    for case in every:
        results = run.results.get(case.name)
        if not results:
            continue
        found["cases"][case.name] = {
            "title": case.title, "reference": case.reference, "rounds": results,
            "peers": {label: aggregate(rounds, results.get(case.reference))
                      for label, rounds in results.items()}}
        targets = getattr(case, "targets", ()) or cases.SCENE_TARGETS.get(case.name, ())
        found["targets"] += [judge(target, case.name, results) for target in targets]
    found["targets"].append(judge_lateness(run.results))
    return found


def table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def range_of(found):
    text = shown(found["median"])
    if found["least"] != found["largest"]:
        text += f" ({shown(found['least'])} to {shown(found['largest'])})"
    return text


def target_rows(targets):
    for row in targets:
        sign = "≥" if row["at_least"] else "≤"
        against = row["against"].split()
        behind = f" × {against[0] if len(against) == 1 else 'the best peer'}" if against else ""
        yield [row["case"], row["peer"], figure_title(row["figure"]),
               f"{sign} {shown(row['limit'])}{behind}",
               range_of(row) if row["median"] is not None else "–", shown(row["ratio"]),
               row["verdict"] if row["verdict"] != "missed" else "**missed**"]


def columns_of(case, peers):
    """The figures that a case's table shows, without those that nobody has."""
    load = next((each for each in cases.LOADS if each.name == case), None)
    if load:
        names = ONE_KEY if load.one_key else DISTINCT
    elif case.startswith("hold-"):
        names = HOLD
    elif case in ("busy", "idle"):
        names = BUSY
    else:
        names = list(dict.fromkeys(name for found in peers.values() for name in found))
    return [name for name in names if any(name in found for found in peers.values())]


def case_lines(name, case):
    peers = case["peers"]
    columns = columns_of(name, peers)
    first = "cpu_us_per_renewal" if name.startswith("hold-") else FIRST.get(name, columns[0])
    titles = ["", *(figure_title(column) for column in columns)]
    is_compared = case["reference"] in peers and len(peers) > 1
    if is_compared:
        titles.insert(1, f"{figure_title(first).split(',')[0]}, ratio to {case['reference']}")
    rows = []
    for label, found in peers.items():
        row = [range_of(found[column]) if column in found else "–" for column in columns]
        if is_compared:
            row.insert(0, shown(found[first]["ratio"]) if first in found else "–")
        rows.append([label, *row])
    return [f"### {name}", "", f"{case['title']}.", "", *table(titles, rows)]


def document(found):
    lines = ["# Benchmarks of lockbroker", "",
             "Medians of the rounds, and in brackets their range. Ratios are medians of each round's "
             "ratio, since the machine is faster in one minute than in another.", ""]
    lines += [f"- {name}: {value}" for name, value in found["machine"].items()]
    lines += ["- " + ", ".join(f"{name} {value}" for name, value in found["versions"].items()), ""]
    for problem in found["problems"]:
        lines += [f"**Problem**: {problem}", ""]
    if found["targets"]:
        lines += ["## Targets", ""]
        lines += table(["case", "", "figure", "target", "found", "ratio", ""],
                       target_rows(found["targets"]))
    lines += ["## Cases", ""]
    for name, case in found["cases"].items():
        lines += case_lines(name, case)
    for name, labels in found["skipped"].items():
        lines += [f"- {name}, {label}: skipped, {reason}" for label, reason in labels.items()]
    return "\n".join(lines).rstrip("\n") + "\n"


def write(run, options, took_s):
    found = whole(run, options, took_s)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
        file.write("\n")
    with open(os.path.join(options.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(document(found))
    return found
