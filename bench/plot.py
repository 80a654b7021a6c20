"""Small charts as SVG text, with nothing but the standard library."""
import html
import math

WIDTH, HEIGHT = 520, 250  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 96, 24, 40, 40
INK, PALE, GRID = "#24292f", "#6e7781", "#d8dee4"
COLOURS = {"engine": "#0969da", "floor": "#57606a", "a session": "#0969da", "live": "#0969da", "one by one": "#0969da",
           "staggered": "#57606a", "fork": "#0969da", "rollback": "#1a7f37", "checkpoint again": "#8250df",
           "first checkpoint": "#cf222e"}
PEER_COLOUR = "#bf8700"


def colour(name):
    return COLOURS.get(name, PEER_COLOUR)


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Panel:
    """One chart. Values are mapped to the plot area by x() and y()."""

    def __init__(self, title, x_range, y_range, log_x=False, log_y=False):
        self.parts, self.log_x, self.log_y = [], log_x, log_y
        self.x_range, self.y_range = x_range, y_range
        self.text(LEFT, 20, title, size=14, weight="bold")

    def x(self, value):
        low, high = self.x_range
        if self.log_x:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        low, high = self.y_range
        if self.log_y:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, words, size=12, anchor="start", fill=INK, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
                          f'font-weight="{weight}">{html.escape(words)}</text>')

    def line(self, x1, y1, x2, y2, stroke=GRID, width=1, dash=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                          f'stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def bar(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}" '
                          f'fill="{fill}"/>')

    def curve(self, points, stroke):
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="2"/>')

    def x_axis(self, ticks, label):
        for tick in ticks:
            self.line(self.x(tick), TOP, self.x(tick), HEIGHT - BOTTOM)
            self.text(self.x(tick), HEIGHT - BOTTOM + 14, number(tick), size=11, anchor="middle", fill=PALE)
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, label, size=11, anchor="middle", fill=PALE)

    def y_axis(self, ticks, unit):
        for tick in ticks:
            self.line(LEFT, self.y(tick), WIDTH - RIGHT, self.y(tick))
            self.text(LEFT - 6, self.y(tick) + 4, number(tick) + unit, size=11, anchor="end", fill=PALE)


def decades(low, high):
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0 ** e for e in range(first, max(last, first + 1) + 1)]


def round_ticks(high, count=4):
    """0 and up to about `count` round numbers, the last at or above `high`."""
    step = 10 ** math.floor(math.log10(high / count))
    step = next(step * m for m in (1, 2, 5, 10) if step * m * count >= high)
    return [step * i for i in range(math.ceil(high / step) + 1)]


def bars(title, label, values, marks=None):
    """Horizontal bars on a logarithmic axis; `marks` are second values shown as ticks."""
    marks = marks or {}
    everything = [*values.values(), *marks.values()]
    ticks = decades(min(everything) / 1.5, max(everything) * 1.5)
    panel = Panel(title, (ticks[0], ticks[-1]), (0, 1), log_x=True)
    panel.x_axis(ticks, label)
    slot = (HEIGHT - TOP - BOTTOM) / len(values)
    for i, (name, value) in enumerate(values.items()):
        top = TOP + i * slot
        panel.bar(LEFT, top + slot * 0.2, panel.x(value) - LEFT, slot * 0.6, colour(name))
        panel.text(LEFT - 6, top + slot / 2 + 4, name, anchor="end")
        end = panel.x(value)
        if name in marks:
            mark = panel.x(marks[name])
            panel.line(end, top + slot / 2, mark, top + slot / 2, stroke=INK)
            panel.line(mark, top + slot * 0.3, mark, top + slot * 0.7, stroke=INK, width=2)
            end = max(end, mark)
        # Beside the bar, or inside it where the axis ends.
        inside = end > WIDTH - RIGHT - 50
        panel.text(panel.x(value) - 5 if inside else end + 5, top + slot / 2 + 4, number(value), size=11,
                   anchor="end" if inside else "start", fill="#ffffff" if inside else INK)
    return panel


def distribution(title, label, series):
    """Share of samples at or below each value, cut at the 99th percentile of the widest."""
    high = max(sorted(values)[int(len(values) * 0.99)] for values in series.values())
    ticks = round_ticks(high)
    panel = Panel(title, (0, ticks[-1]), (0, 100))
    panel.x_axis(ticks, label)
    panel.y_axis((0, 25, 50, 75, 100), " %")
    for i, (name, values) in enumerate(series.items()):
        ordered = sorted(values)
        points = [(v, 100 * (n + 1) / len(ordered)) for n, v in enumerate(ordered) if v <= ticks[-1]]
        panel.curve(points, colour(name))
        panel.text(WIDTH - RIGHT - 4, HEIGHT - BOTTOM - 10 - 16 * i, name, anchor="end", fill=colour(name), weight="bold")
    return panel


def growth(title, label, values, limit):
    """Medians of neighbours in order, with the limit as a dashed line."""
    bucket = max(1, len(values) // 60)
    points = []
    for start in range(0, len(values) - bucket + 1, bucket):
        part = sorted(values[start:start + bucket])
        points.append((start + bucket / 2, part[len(part) // 2]))
    ticks = round_ticks(max([limit, *(p[1] for p in points)]) * 1.05)
    panel = Panel(title, (0, len(values)), (0, ticks[-1]))
    panel.x_axis([len(values) * i // 4 for i in range(5)], label)
    panel.y_axis(ticks, " ms")
    panel.line(LEFT, panel.y(limit), WIDTH - RIGHT, panel.y(limit), stroke=PALE, dash="5 4")
    panel.curve(points, colour("engine"))
    return panel


def scaling(title, label, values, limit, unit):
    """How a figure changes with a size, on a logarithmic axis; the limit as a dashed line."""
    ticks = round_ticks(max([limit, *values.values()]) * 1.05)
    panel = Panel(title, (min(values), max(values)), (0, ticks[-1]), log_x=True)
    panel.x_axis(decades(min(values), max(values)), label)
    panel.y_axis(ticks, unit)
    panel.line(LEFT, panel.y(limit), WIDTH - RIGHT, panel.y(limit), stroke=PALE, dash="5 4")
    panel.curve(sorted(values.items()), colour("engine"))
    for size, value in values.items():
        panel.text(panel.x(size), panel.y(value) - 8, number(value), size=11, anchor="middle")
    return panel


def lines(title, label, series, unit):
    """How several figures change with a size; upwards logarithmic. Each is named beside its end."""
    sizes = sorted({size for points in series.values() for size in points})
    everything = [value for points in series.values() for value in points.values()]
    ticks = decades(min(everything), max(everything))
    room = (sizes[-1] - sizes[0]) * 0.4  # for the names
    panel = Panel(title, (sizes[0], sizes[-1] + room), (ticks[0], ticks[-1]), log_y=True)
    panel.x_axis(sizes, label)
    panel.y_axis(ticks, unit)
    free = HEIGHT - BOTTOM + 4
    for name, points in sorted(series.items(), key=lambda entry: entry[1][max(entry[1])]):
        panel.curve(sorted(points.items()), colour(name))
        last = max(points)
        at = min(panel.y(points[last]) + 4, free)  # Names do not cover each other.
        free = at - 14
        panel.text(panel.x(last) + 6, at, f"{name} {number(points[last])}", size=11, fill=colour(name))
    return panel


def page(panels, columns=2):
    rows = math.ceil(len(panels) / columns)
    body = "\n".join(f'<g transform="translate({i % columns * WIDTH},{i // columns * HEIGHT})">\n'
                     + "\n".join(panel.parts) + "\n</g>" for i, panel in enumerate(panels))
    width, height = WIDTH * min(columns, len(panels)), HEIGHT * rows
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif">\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n')
