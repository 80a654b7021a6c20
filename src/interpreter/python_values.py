"""How the Python side of an interpreter shows values: as MIME bundles, and what figures show as numbers.

Run after python_kernel.py in the same namespace.
"""
import base64
import io
import json
import re
import sys

MOST_REPR = 1 << 20
MOST_SHOWN = 16 << 20  # of one value, in all its forms
MOST_LEVELS = 50  # of JSON
CHART = "application/vnd.agent-sandbox.chart+json"
DATA = "application/vnd.agent-sandbox.data+json"

# Which method of an object gives which kind of picture of it.
REPRESENTATIONS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf", "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


# ---- pictures of values


def text_of(value):
    try:
        text = repr(value)
    except Exception as problem:  # noqa: BLE001  a program's own __repr__
        text = f"<{type(value).__name__}: repr failed: {type(problem).__name__}>"
    return text if len(text) <= MOST_REPR else text[:MOST_REPR] + "…"


def whole_number(digits):
    if len(digits) > 300:
        raise ValueError("no reader takes such numbers")
    return int(digits)


def is_deeper(value, levels):
    within = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(each, levels - 1) for each in within if isinstance(each, (dict, list)))


def as_json(value):
    """As every reader of JSON takes it; ValueError, TypeError or RecursionError if there is no such thing."""
    value = json.loads(json.dumps(value, allow_nan=False), parse_int=whole_number)
    if isinstance(value, (dict, list)) and is_deeper(value, MOST_LEVELS):
        raise ValueError("too many levels")
    return value


def as_value(data):
    if isinstance(data, tuple):  # (data, metadata)
        data = data[0]
    if isinstance(data, (bytes, bytearray)):
        return base64.b64encode(data).decode()
    return data if isinstance(data, str) else as_json(data)


def fitting(bundle, room):
    """Without what is too large to be told, which is named instead; and how large the rest is."""
    kept, size, left_out = {}, 0, []
    for mime, value in bundle.items():
        length = len(value) if isinstance(value, str) else len(json.dumps(value))
        if size + length > min(MOST_SHOWN, room):
            left_out.append(mime)
        else:
            kept[mime] = value
            size += length
    if left_out:
        kept["text/plain"] = f"{kept.get('text/plain', '')[:1000]}\n(too large to be shown: {', '.join(left_out)})".lstrip()
    return kept, size


def bundle_of(value):
    """MIME type to value. An object that fails to draw itself is still shown as text."""
    bundle = {"text/plain": text_of(value)}
    if isinstance(value, type):
        return bundle
    whole = getattr(value, "_repr_mimebundle_", None)
    if callable(whole):
        try:
            made = whole(include=None, exclude=None)
            made = made[0] if isinstance(made, tuple) else made
            bundle.update({mime: as_value(data) for mime, data in (made or {}).items()})
        except Exception:  # noqa: BLE001
            pass
    for name, mime in REPRESENTATIONS.items():
        method = getattr(value, name, None)
        if mime in bundle or not callable(method):
            continue
        try:
            data = method()
            if data is not None:
                bundle[mime] = as_value(data)
        except Exception:  # noqa: BLE001
            continue
    if isinstance(value, (dict, list)) and "application/json" not in bundle:
        try:
            bundle["application/json"] = as_json(value)
        except (TypeError, ValueError, RecursionError):
            pass
    if type(value).__module__.startswith("pandas.") and hasattr(value, "to_dict"):
        try:
            bundle[DATA] = json.loads(value.head(1000).to_json(orient="columns" if value.ndim > 1 else "index"))
        except Exception:  # noqa: BLE001
            pass
    figure = sys.modules.get("matplotlib.figure")
    if figure and isinstance(value, figure.Figure):
        bundle.update(picture_of(value))
    return bundle


def picture_of(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    bundle = {"image/png": base64.b64encode(out.getvalue()).decode()}
    try:
        bundle[CHART] = chart_of(figure)
    except Exception:  # noqa: BLE001  the picture is what matters
        pass
    return bundle


# ---- what a figure shows, as numbers


def plain(value):
    """A number or text that JSON knows."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def scale_of(axis):
    converter = type(getattr(axis, "converter", None) or getattr(axis, "_converter", None)).__name__
    if "Date" in converter:
        return "datetime"
    if "StrCategory" in converter:
        return "categorical"
    return axis.get_scale()


def axis_of(name, axis):
    return {f"{name}_ticks": [plain(tick) for tick in axis.get_ticklocs()],
            f"{name}_tick_labels": [label.get_text() for label in axis.get_ticklabels()],
            f"{name}_scale": scale_of(axis)}


def unit_in(label):
    found = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", label)
    return found[1] if found else None


def named(artist, number):
    label = str(artist.get_label())
    return label if label and not label.startswith("_") else f"series {number}"


def boxes_in(lines):
    """Boxes have no class of their own: each is a row of lines, in the order in which boxplot() draws them."""
    sizes = [len(line.get_xdata()) for line in lines]
    for each in (7, 6):  # with what lies outside, and without
        starts = range(0, len(lines), each)
        if lines and len(lines) % each == 0 and all(sizes[at:at + 6] == [5, 2, 2, 2, 2, 2] for at in starts):
            return [lines[at:at + each] for at in starts]
    return []


def box_elements(axes, boxes):
    labels = [label.get_text() for label in axes.get_xticklabels()]
    elements = []
    for number, (box, low, high, _, _, median, *outside) in enumerate(boxes):
        elements.append({"label": labels[number] if number < len(labels) else str(number + 1),
                         "min": plain(min(low.get_ydata())), "first_quartile": plain(min(box.get_ydata())),
                         "median": plain(median.get_ydata()[0]), "third_quartile": plain(max(box.get_ydata())),
                         "max": plain(max(high.get_ydata())),
                         "outliers": [plain(y) for line in outside for y in line.get_ydata()]})
    return elements


def elements_of(axes):
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    if wedges:
        texts = [text.get_text() for text in axes.texts]
        return "pie", [{"label": texts[i] if i < len(texts) else str(i + 1),
                        "angle": plain(wedge.theta2 - wedge.theta1), "radius": plain(wedge.r)}
                       for i, wedge in enumerate(wedges)]
    bars = [each for each in axes.containers if type(each).__name__ == "BarContainer"]
    if bars:
        ticks = {round(float(at), 6): label.get_text()
                 for at, label in zip(axes.get_xticks(), axes.get_xticklabels())}
        return "bar", [{"label": ticks.get(round(float(bar.get_x() + bar.get_width() / 2), 6)) or
                        str(plain(bar.get_x() + bar.get_width() / 2)),
                        "group": named(group, number), "value": plain(bar.get_height())}
                       for number, group in enumerate(bars, 1) for bar in group]
    lines = list(axes.get_lines())
    if boxes := boxes_in(lines):
        return "box_and_whisker", box_elements(axes, boxes)
    if lines:
        return "line", [{"label": named(line, number),
                         "points": [[plain(x), plain(y)] for x, y in zip(line.get_xdata(), line.get_ydata())]}
                        for number, line in enumerate(lines, 1)]
    dots = [each for each in axes.collections if type(each).__name__ == "PathCollection"]
    if dots:
        return "scatter", [{"label": named(each, number), "points": [[plain(x), plain(y)] for x, y in each.get_offsets()]}
                           for number, each in enumerate(dots, 1)]
    return "unknown", []


def axes_chart(axes):
    kind, elements = elements_of(axes)
    chart = {"type": kind, "title": axes.get_title() or None, "elements": elements}
    if kind in ("line", "scatter", "bar", "box_and_whisker"):
        for name, label in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
            chart[f"{name}_label"], chart[f"{name}_unit"] = label or None, unit_in(label)
    if kind in ("line", "scatter"):
        chart.update(axis_of("x", axes.xaxis), **axis_of("y", axes.yaxis))
    return chart


def chart_of(figure):
    charts = [axes_chart(axes) for axes in figure.get_axes()]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": charts}
