"""A result in a notebook: its table, its picture, and the tour that runs."""

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proxy.dbapi import Cursor
from proxy.engine.answers import Answer, Explanation, Posterior, Result
from proxy.errors import InterfaceError, NotSupportedError
from proxy.notebook import plots, tables
from proxy.sql.program import Column

ROOT = Path(__file__).parent.parent
TAGS = {"div", "style", "table", "thead", "tbody", "tr", "th", "td", "p", "span", "em"}
HOSTILE = "<script>alert('x')</script>\" onload=\"\u202e"
POSTERIOR = Posterior((-0.5, 9.5, 19.5, 29.5), (0.0, 0.25, 0.75, 1.0), 0.0, 1.0)


def answer(estimate=1234.0, half=50.0, source="measured", **more):
    """An answer around an estimate."""
    values = {"low": estimate - half, "high": estimate + half, "confidence": 0.95, "cost": 0.05}
    return Answer(estimate=estimate, source=source, **values | more)


def made(rows, answers, names=("region", "people"), **more):
    """A result whose last columns are numbers."""
    count = len(answers[0])
    places = list(range(len(names) - count, len(names)))
    types = ["text"] * (len(names) - count) + ["bigint"] * count
    values = {"cost": 0.05, "left": 0.9, "numbers": count * len(rows), "tag": f"SELECT {len(rows)}"}
    columns = tuple(map(Column, names, types))
    return Result(columns, rows, answers, places=[places] * len(rows), **values | more)


def regions(count=3, **more):
    """A result with a row for each region."""
    rows = [(f"region {i}", 100 * i) for i in range(count)]
    return made(rows, [[answer(100.0 * i)] for i in range(count)], **more)


def one(explained=True, found=None):
    """A result that is a single number."""
    found = found or answer(14.5, 10)
    explanations = [[Explanation(POSTERIOR, ())]] if explained else []
    return made([(14,)], [[found]], ("people",), explanations=explanations)


class Page(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"class", "colspan", "title"}

    def handle_data(self, data):
        self.texts.append(data)


def test_a_table_shows_each_number_with_its_interval_source_and_cost():
    """
    Cells are what people read: digits in threes, ends outwards; NULL is told from a text.
    """
    result = made(
        [("south", 1234), (None, 7), ("", 7)],
        [[answer(half=50.4)], *[[answer(7.0, 1, "inferred", cost=0.0)]] * 2],
        notices=("a notice",),
    )
    texts = Page(tables.html(result)).texts
    assert texts[1:] == [
        *("region", "people"),
        *("south", "1,234", "[1,183, 1,285] 95% ", "measured, 0.05"),
        *("NULL", "7", "[6.0, 8.0] 95% ", "inferred"),
        *("''", "7", "[6.0, 8.0] 95% ", "inferred"),
        *("cost 0.05, left 0.9", "notice: a notice"),
    ]


@pytest.mark.parametrize(
    "source, shown", [("approximate", "≈ 1,234"), ("derived", "1,234"), ("unknown", "? 1,234")]
)
def test_what_is_no_measurement_is_marked(source, shown):
    """
    By its source; what is approximate also beside the number; of an unknown one no end is shown.
    """
    texts = Page(tables.html(made([(1234,)], [[answer(source=source)]], ("n",)))).texts
    assert shown in texts
    assert f"{source}, 0.05" in texts
    assert any("95%" in text for text in texts) == (source != "unknown")


def test_texts_that_are_not_ours_are_shown_as_they_are():
    """
    Names, values, notices and limits that hold markup make no tag and no attribute; what turns the
    direction of writing is written out.
    """
    result = made(
        [(HOSTILE, 5)],
        [[answer(source=HOSTILE)]],
        (HOSTILE, HOSTILE),
        notices=(HOSTILE,),
        left_of=HOSTILE,
    )
    for each in (result, Result((), [], [], 0.0, 0.0, tag=HOSTILE)):
        page = Page(tables.html(each))
        assert set(page.tags) <= TAGS
        assert any("<script>alert('x')</script>" in text for text in page.texts)
        assert "\u202e" not in "".join(page.texts)


def test_long_results_and_texts_are_cut():
    """
    A table ends after so many rows, and says of how many.
    """
    page = Page(tables.html(regions(2000)))
    assert page.tags.count("tr") == tables.SHOWN + 1
    assert f"the first {tables.SHOWN} of 2,000 rows" in page.texts
    assert f"the first {tables.SHOWN}" not in "".join(Page(tables.html(regions(50))).texts)
    long = made([("x" * 10_000, 1)], [[answer()]])
    assert max(map(len, Page(tables.html(long)).texts[1:])) == tables.LONG


def test_a_cursor_is_shown_as_its_result_is():
    """
    As a table; before anything was executed as any object.
    """
    cursor = Cursor(connection=None)
    assert cursor._repr_html_() is None
    assert repr(cursor) == "<proxy.Cursor: nothing executed>"
    cursor._results = [regions()]
    assert cursor._repr_html_() == tables.html(regions())
    assert repr(cursor) == "<proxy.Cursor: SELECT 3>"


@pytest.fixture
def axes():
    """Axes of a figure that nobody shows."""
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure()
    found = figure.subplots()
    yield found
    figure.draw_without_rendering()  # every text in it can be set


def bars(axes):
    """The heights of the bars."""
    return [bar.get_height() for bar in axes.patches]


def whiskers(axes):
    """The ends of the intervals that are drawn."""
    lines = [each.lines[2][0] for each in axes.containers if each.__class__.__name__[0] == "E"]
    return [tuple(line.get_segments()[0][:, 1]) for line in lines]


def test_groups_are_bars_with_their_intervals(axes):
    """
    A bar is as high as its estimate; its whisker goes from end to end, and need not hold it.
    """
    found = [[answer(100.0)], [answer(-20.0, low=0.0, high=30.0)]]
    result = made([("south", 100), ("$north$_{", -20)], found)
    assert plots.plot(result, axes) is axes
    assert bars(axes) == [100, -20]
    assert whiskers(axes) == [(50, 150), (0, 30)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["south", r"\$north\$_{"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("region", "people")


def test_what_is_not_known_has_no_bar(axes):
    """
    A NULL leaves a gap, and an interval without ends no whisker.
    """
    nothing = answer(math.nan, low=-math.inf, high=math.inf)
    result = made([("a", None), ("b", 5)], [[nothing], [answer(5.0, low=-math.inf)]])
    plots.plot(result, axes)
    assert bars(axes) == [5]
    assert whiskers(axes) == []


def test_several_numbers_of_a_row_stand_side_by_side(axes):
    """
    With a legend of their names; one column can be chosen.
    """
    pairs = [[answer(10.0), answer(20.0)], [answer(11.0), answer(21.0)]]
    result = made([("a", 10, 20), ("b", 11, 21)], pairs, ("region", "n", "m"))
    plots.plot(result, axes)
    assert bars(axes) == [10, 11, 20, 21]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["n", "m"]
    axes.clear()
    plots.plot(result, axes, column="m")
    assert bars(axes) == [20, 21]


def test_a_row_of_numbers_has_a_bar_for_each(axes):
    """
    Named as their columns are.
    """
    plots.plot(made([(10, 20)], [[answer(10.0), answer(20.0)]], ("n", "m")), axes)
    assert bars(axes) == [10, 20]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["n", "m"]


def test_one_number_is_its_posterior_with_the_interval_shaded(axes):
    """
    The curve is the density; what is shaded ends with the interval.
    """
    plots.plot(one(found=answer(14.5, 5)), axes)
    curve, point = axes.lines
    assert [tuple(each) for each in curve.get_xydata()] == POSTERIOR.density()
    assert point.get_xdata() == [14.5]
    (shade,) = axes.collections
    shaded = shade.get_paths()[0].vertices[:, 0]
    assert (shaded.min(), shaded.max()) == (9.5, 19.5)
    assert axes.get_title() == "14  [9, 20] 95%"


def test_one_number_without_explanation_is_a_point_with_its_interval(axes):
    """
    As far as is known.
    """
    plots.plot(one(explained=False), axes)
    (line,) = axes.collections
    assert tuple(line.get_segments()[0][:, 0]) == (4.5, 24.5)


@pytest.mark.parametrize(
    "result, column, word",
    [
        (None, None, "execute a statement first"),
        (Result((), [], [], 0.0, 0.0), None, "SELECT region"),
        (Result((Column("a", "text"),), [("x",)], [[]], 0, 0, places=[[]]), None, "SELECT region"),
        (regions(), "nobody", "there are people"),
        (regions(plots.BARS + 1), None, "LIMIT"),
    ],
)
def test_what_cannot_be_drawn_says_what_can(result, column, word):
    """
    Nothing, no number, no such column, too many: each with a way out.
    """
    with pytest.raises((InterfaceError, NotSupportedError)) as caught:
        plots.plot(result, None, column)
    assert word in caught.value.hint


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch):
    """
    It is an extra.
    """
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(NotSupportedError, match="needs matplotlib") as caught:
        plots.plot(regions())
    assert "sql-privacy-proxy[plots]" in caught.value.hint


RUN = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=120, record_timing=False).execute()
nbformat.write(notebook, sys.argv[2])
"""
NUMBERS = re.compile(r"-?[0-9][0-9,.]*")


def said(path):
    """What the cells of a notebook say, with a sign for each number; of pictures only the kind."""
    cells = json.loads(path.read_text())["cells"]
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        texts = {"text": output.get("text", [])} | output.get("data", {})
        shown = {
            kind: "" if kind == "image/png" else " ".join(NUMBERS.sub("#", "".join(text)).split())
            for kind, text in texts.items()
        }
        yield output["output_type"], shown


@pytest.mark.slow
def test_the_tour_runs_and_says_what_it_shows(tmp_path):
    """
    Every cell of the notebook runs in a kernel of its own, on a new state; what it gives is what
    the notebook was saved with, but for the numbers.
    """
    pytest.importorskip("nbclient")
    tour = ROOT / "examples" / "tour.ipynb"
    call = [sys.executable, "-W", "ignore", "-c", RUN, tour, tmp_path / "run.ipynb"]
    done = subprocess.run(call, cwd=tour.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(said(tmp_path / "run.ipynb")) == list(said(tour))


def test_the_saved_tour_names_no_place_of_a_machine():
    """
    It is read by others: no path, no address, no time.
    """
    text = (ROOT / "examples" / "tour.ipynb").read_text()
    assert not re.search(r"/(home|root|tmp|work|Users)/|0x[0-9a-f]{6}", text)
    assert "execution" not in re.sub(r'"execution_count"', "", text)
