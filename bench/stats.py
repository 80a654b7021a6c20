"""Percentiles, targets and tables."""
import dataclasses
import math
import statistics


def percentile(values, share):
    """The smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def p50(values):
    return percentile(values, 0.50)


def p99(values):
    return percentile(values, 0.99)


def ratio_of_rounds(ours, theirs):
    """The median over rounds of p50 / p50: what disturbs the machine for a while disturbs both sides of a round."""
    return statistics.median(p50(a) / p50(b) for a, b in zip(ours, theirs))


def flat(rounds):
    return [value for values in rounds for value in values]


def ms(nanoseconds):
    return f"{nanoseconds / 1e6:.3f} ms" if nanoseconds < 10e6 else f"{nanoseconds / 1e6:.1f} ms"


@dataclasses.dataclass
class Target:
    """One promise and what became of it. `passed` is None where it could not be measured."""
    name: str
    target: str
    measured: str = "–"
    p99: str = "–"
    reference: str = "–"
    ratio: str = "–"
    passed: bool | None = None
    note: str = ""

    def verdict(self):
        return {True: "pass", False: "MISSED", None: "not measured"}[self.passed]


def table(header, rows, markdown):
    """Columns of equal width; as Markdown or for a terminal."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    edge, between = ("| ", " | ") if markdown else ("", "  ")

    def line(cells):
        text = between.join(str(cell).ljust(width) for cell, width in zip(cells, widths))
        return (edge + text + (" |" if markdown else "")).rstrip()

    rule = [("-" if markdown else "─") * width for width in widths]
    return "\n".join([line(header), line(rule), *map(line, rows)])
