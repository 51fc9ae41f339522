"""Plots of the results, as SVG: one file a question. Without matplotlib there are none.

    plot.py bench-results           draws anew from results.json
    plot.py bench-results --png     as PNG, to be looked at
"""

import json
import math
import os
import sys

import clients
import records

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
except ImportError:
    pyplot = None

# A peer has one colour in all plots; ours are the blue ones.
COLOURS = {
    "lockbroker": "#1f5fa8", "lockbroker-linger": "#4f9be0", "lockbroker-py": "#86b9e8",
    "lockbroker-2": "#4f9be0", "lockbroker-4": "#86b9e8",
    "raw": "#6b6b6b", "raw-fence": "#a0a0a0", "flock": "#c9a227", "blpop": "#e07b39",
    "redis-py": "#b3372f", "redis-py-50ms": "#d9786f", "redis-py-thread": "#e8aba5",
    "redlock": "#3f8f57", "redis-semaphore": "#86c398", "no locks": "#a0a0a0",
}
WIDTH = 9  # inches
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "grid.color": "#dddddd", "axes.axisbelow": True,
         "svg.hashsalt": "lockbroker", "svg.fonttype": "none", "figure.dpi": 100}


def colour(label):
    return COLOURS.get(label, "#555555")


def plain(axis):
    """Numbers as people write them, on an axis that is logarithmic."""
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.6g}"))


def new_figure(rows, columns, height):
    return pyplot.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False,
                           layout="constrained")


def below_all(figure, axes, share):
    """The names of all curves below the plots, in a share of the figure that is left free for it."""
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=9, frameon=False)


def bars(axes, peers, figure, unit):
    """A bar a peer: the median, with the range of the rounds."""
    labels = [label for label in peers if figure in peers[label]][::-1]
    for row, label in enumerate(labels):
        found = peers[label][figure]
        axes.barh(row, found["median"], color=colour(label), height=0.7)
        axes.plot([found["least"], found["largest"]], [row, row], color="black", linewidth=1.5)
        axes.annotate(f"{found['median']:,.4g}", (found["largest"], row), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(unit)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)


def draw_latency(found):
    """What a lock costs when nobody else wants it."""
    names = [name for name in ("alone", "alone-tcp") if name in found]
    figure, axes = new_figure(1, len(names), 3.6)
    for each, name in zip(axes[0], names):
        bars(each, found[name]["peers"], "cycle_p50_us", "µs to acquire and to release, median")
        each.set_title("Redis by TCP" if name.endswith("tcp") else "Redis by Unix socket")
    figure.suptitle("One contender, one core: latency without contention (lines: range of rounds)")
    return figure


def draw_throughput(found):
    """What all get done by number of contenders, each with a lock of its own."""
    panels = [("processes", ("alone", "distinct-8", "distinct-64")),
              ("connections of one process", ("alone", "distinct-8-connections",
                                              "distinct-64-connections"))]
    figure, axes = new_figure(1, 2, 4.6)
    for each, (title, names) in zip(axes[0], panels):
        counts = dict(zip(names, (1, 8, 64)))
        labels = dict.fromkeys(label for name in names[1:] if name in found
                               for label in found[name]["peers"])
        for label in labels:
            points = [(counts[name], found[name]["peers"][label]["cycles_per_s"]) for name in names
                      if label in found.get(name, {"peers": {}})["peers"]]
            middles = [point["median"] for _, point in points]
            each.errorbar([count for count, _ in points], middles,
                          [[point["median"] - point["least"] for _, point in points],
                           [point["largest"] - point["median"] for _, point in points]],
                          color=colour(label), label=label, marker="o", markersize=5, capsize=3)
        each.set_xscale("log", base=2)
        each.set_xticks([1, 8, 64])
        plain(each.xaxis)
        each.minorticks_off()
        each.set_ylim(bottom=0)
        plain(each.yaxis)
        each.set_title(title)
        each.set_xlabel("contenders, each with a lock of its own")
        each.legend(fontsize=8, frameon=False, ncols=3, loc="upper center",
                    bbox_to_anchor=(0.5, -0.14))
    axes[0][0].set_ylabel("locks acquired and released a second")
    figure.suptitle("Throughput on one core (bars: range of rounds)")
    return figure


def middle_quantiles(rounds, name):
    """Of several rounds, the median of each quantile."""
    rows = [each[name] for each in rounds if each.get(name)]
    return [records.percentile(sorted(column), 50) for column in zip(*rows)]


def curves(axes, rounds, name, least):
    """How many percent are not above: a line a peer."""
    for label, each in rounds.items():
        values = middle_quantiles(each, name)
        if values:
            axes.step([max(value, least) for value in values], list(records.QUANTILES),
                      where="post", color=colour(label), label=label,
                      linewidth=2.5 if label == "lockbroker" else 1.4)
    axes.set_xscale("log")
    plain(axes.xaxis)
    axes.set_ylim(0, 100.5)


def draw_hot(found):
    """One lock that all want: the gaps between two holders, and the waits."""
    names = [name for name in ("hot-8", "hot-100") if name in found]
    figure, axes = new_figure(len(names), 2, 3.3 * len(names) + 0.6)
    for row, name in zip(axes, names):
        rounds = found[name]["rounds"]
        curves(row[0], rounds, "gap_quantiles_us", 1)
        curves(row[1], rounds, "wait_quantiles_ms", 0.001)
        contenders = name.split("-")[1]
        ideal = found[name]["peers"].get("lockbroker", {}).get("wait_ideal_ms")
        if ideal:
            row[1].axvline(ideal["median"], color="black", linestyle=":", linewidth=1)
            row[1].annotate("all others once", (ideal["median"], 3), xytext=(-3, 0), fontsize=8,
                            textcoords="offset points", rotation=90, ha="right")
        row[0].set_ylabel(f"{contenders} processes: % of grants")
        row[0].set_xlabel("gap between two holders, µs")
        row[1].set_xlabel("wait, ms (without an end: so far)")
    below_all(figure, axes[0][0], 0.6 / figure.get_figheight())
    figure.suptitle("One lock, held for 2 ms each time: left is faster, upright is fairer")
    return figure


def draw_growth(found):
    """CPU time by number, beside what n log n would be."""
    peers = found["growth"]["peers"]
    kinds = [kind for kind in clients.GROWTHS if any(label.endswith(f" {kind}") for label in peers)]
    figure, axes = new_figure(1, 1, 5)
    each = axes[0][0]
    marks = zip(kinds, ("#1f5fa8", "#e07b39", "#3f8f57", "#b3372f"), "os^D")
    for kind, shade, mark in marks:
        points = [(found["n"]["median"], found["daemon_cpu_ms"]) for label, found in peers.items()
                  if label.endswith(f" {kind}")]
        counts = [count for count, _ in points]
        middles = [point["median"] for _, point in points]
        each.errorbar(counts, middles, [[p["median"] - p["least"] for _, p in points],
                                        [p["largest"] - p["median"] for _, p in points]],
                      color=shade, marker=mark, label=kind, linewidth=2, capsize=3)
        from_n = counts[min(1, len(counts) - 1)]  # the first is mostly what the rest costs
        from_ms = middles[min(1, len(counts) - 1)]
        n_log_n = [from_ms * n * math.log(n) / (from_n * math.log(from_n)) for n in counts]
        each.plot(counts[1:], n_log_n[1:], color=shade, linestyle=":", linewidth=1.2)
    each.plot([], [], color="black", linestyle=":",
              label="n log n from the second point on: nothing may rise above")
    each.set_xscale("log")
    each.set_yscale("log")
    plain(each.xaxis)
    plain(each.yaxis)
    each.set_xlabel("number of locks, renewals, waiters or clients")
    each.set_ylabel("CPU time of the daemon, ms")
    each.legend(frameon=False)
    each.set_title("Cost as the number grows tenfold")
    return figure


def draw_lateness(axes, found):
    """Each case's percentiles of how late renewals were, as bounds of the daemon's histogram."""
    rows = [(name, label, figures) for name, case in found.items()
            for label, figures in case["peers"].items()
            if "late_max_ms" in figures and name in PLOTS["renewal"][1]][::-1]
    for number, (_, _, figures) in enumerate(rows):
        for name, shade in (("late_max_ms", "#cfe0f2"), ("late_p99_ms", "#86b9e8"),
                            ("late_p50_ms", "#1f5fa8")):
            axes.barh(number, max(figures[name]["median"], 0.05), color=shade, height=0.7,
                      label={"late_max_ms": "all", "late_p99_ms": "99 %",
                             "late_p50_ms": "half"}[name] if number == 0 else None)
        limit = figures["margin_ms"]["median"] / 4
        axes.plot([limit, limit], [number - 0.4, number + 0.4], color="#b3372f", linewidth=2)
    axes.plot([], [], color="#b3372f", linewidth=2, label="a quarter of the margin")
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_xscale("symlog", linthresh=1)
    plain(axes.xaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel("renewals were at most so late, ms")
    axes.grid(axis="y", visible=False)
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def draw_renewal(found):
    """How late renewals are, and how long others at Redis wait for them."""
    figure, axes = new_figure(1, 2, 4.6)
    draw_lateness(axes[0][0], found)
    axes[0][0].set_title("Lateness of renewals", fontsize=11)
    if "stall" in found:
        curves(axes[0][1], found["stall"]["rounds"], "ping_quantiles_us", 1)
        axes[0][1].set_ylim(80, 100.1)
        axes[0][1].axvline(500, color="#b3372f", linewidth=1, linestyle=":")
        axes[0][1].set_xlabel("PING of a third party, µs (dotted: 500)")
        axes[0][1].set_ylabel("% of PINGs")
        axes[0][1].legend(fontsize=8, frameon=False)
    axes[0][1].set_title("Redis, 10,000 locks renewed each second", fontsize=11)
    return figure


PLOTS = {
    "latency": (draw_latency, ("alone", "alone-tcp")),
    "throughput": (draw_throughput, ("distinct-8", "distinct-64", "distinct-8-connections",
                                     "distinct-64-connections")),
    "hot": (draw_hot, ("hot-8", "hot-100")),
    "growth": (draw_growth, ("growth",)),
    "renewal": (draw_renewal, ("hold-1000-ttl3", "hold-10000-ttl3", "hold-100000-ttl3",
                               "hold-1000-ttl30", "hold-10000-ttl30",
                               "hold-100000-ttl30", "stall", "busy")),
}


def strip_blanks(path):
    """Without those at the ends of lines, which a version control would complain of."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip() for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def draw_all(whole, folder, suffix="svg"):
    """Each plot for which there are results of some case."""
    if not pyplot:
        print("without matplotlib there are no plots")
        return
    found = whole["cases"]
    for name, (draw, needed) in PLOTS.items():
        if not any(case in found for case in needed):
            continue
        with pyplot.rc_context(STYLE):
            figure = draw(found)
            metadata = {"Date": None} if suffix == "svg" else None
            path = os.path.join(folder, f"{name}.{suffix}")
            figure.savefig(path, metadata=metadata)
            if suffix == "svg":
                strip_blanks(path)
            pyplot.close(figure)


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        draw_all(json.load(file), folder, "png" if "--png" in sys.argv else "svg")


if __name__ == "__main__":
    main()
