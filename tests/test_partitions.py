"""Closed periods keep their cells, and what was answered about them; the others are read again."""

import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import proxy.policy as policies
from proxy.cli import run
from proxy.engine import Engine
from proxy.errors import InsufficientBudgetError, StateError
from proxy.inference.space import Box, Space
from proxy.state import cube_path, state_folder
from proxy.steward import apply, audit, backup, check, init, rebuild, restore, snapshots, verify
from tests.small import Silent
from tests.test_steward import KILLED

POLICY = """\
dataset: orders
source: {engine: duckdb, path: "orders/*.csv"}
max_records: 1_000_000
outside: drop
nulls: drop
attributes:
  day: {from: 2026-01-01, to: 2026-04-30}
  region: {values: [a, b]}
measures:
  amount: {clip: [0, 10], quantum: 1, utility: {half_width: 300, delta: 0.05}}
privacy: {budget: BUDGET, unit: row}
records: RECORDS
utility: {half_width: 20, delta: 0.05}
"""
PARTITION = "partition: {column: day, grain: GRAIN, closes: 2}\n"
JANUARY, MARCH, APRIL, MAY = (date(2026, month, 1) for month in (1, 3, 4, 5))
DAY = timedelta(days=1)


@dataclass
class Orders:
    """A folder of orders by day, a policy over it, and the day that it is."""

    folder: Path
    today: date = JANUARY
    rest: str = ""
    records: str = "immutable"
    counts: dict = field(default_factory=dict)  # (day, region) -> orders, each of amount 3

    @property
    def policy(self):
        return self.folder / "orders.yaml"

    def write(self, grain="month", budget="1", rest=""):
        partition = PARTITION.replace("GRAIN", grain) if grain else ""
        text = POLICY.replace("BUDGET", budget).replace("RECORDS", self.records)
        self.policy.write_text(text + partition + rest + self.rest)

    def put(self, day, *orders):
        """Add orders of (region, number) to a day."""
        for region, number in orders:
            self.counts[day, region] = self.counts.get((day, region), 0) + number
        lines = [
            f"{day},{region},3"
            for (each, region), number in self.counts.items()
            for _ in range(number)
            if each == day
        ]
        folder = self.folder / "orders"
        folder.mkdir(exist_ok=True)
        (folder / f"{day}.csv").write_text("\n".join(["day,region,amount", *lines, ""]))

    def days(self, first, last):
        """Put some orders on each day up to one that is not included."""
        while first < last:
            self.put(first, ("a", 2), ("b", 1))
            first += DAY

    def engine(self):
        return Engine.open(self.policy, sampler=Silent())


@pytest.fixture
def orders(tmp_path, monkeypatch):
    """Orders whose policy does not know the machine's clock."""
    made = Orders(tmp_path)
    monkeypatch.setattr(snapshots, "today", lambda policy: made.today)
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def quarter(request, orders):
    """The orders of three months, read in April."""
    if request.param == "postgres":
        orders.rest = f"ledger: {request.getfixturevalue('cluster').database()}\n"
    orders.today = APRIL + 2 * DAY
    orders.days(JANUARY, APRIL)
    orders.write()
    init(orders.policy)
    return orders


def months(engine):
    """Return the orders of each month, and what they cost."""
    result = engine.session().execute(
        "SELECT CASE WHEN day < '2026-02-01' THEN 1 WHEN day < '2026-03-01' THEN 2 WHEN day < "
        "'2026-04-01' THEN 3 ELSE 4 END AS month, COUNT(*) FROM orders GROUP BY 1 ORDER BY 1"
    )
    return [count for _, count in result.rows], result.cost


def one(engine, what="COUNT(*)", where="day < '2026-04-01'"):
    """Return a number, and what it cost."""
    result = engine.session().execute(f"SELECT {what} FROM orders WHERE {where}")
    return result.rows[0][0], result.cost


def test_what_was_said_of_closed_months_stays_usable(quarter):
    """
    April is appended: January to March cost nothing again, their sums neither; April does, and what
    was said of all orders is said no more.  An engine that is open follows; so does another.
    """
    engine = quarter.engine()
    counts, cost = months(engine)
    assert counts == [93, 84, 93, 0]
    assert [one(engine)[0], one(engine, "SUM(amount)")[0]] == [270, 810]
    one(engine, where="region = 'a'")
    spent = 1 - engine.budget().rules[0].left
    quarter.days(APRIL, APRIL + 10 * DAY)
    report = rebuild(quarter.policy)
    assert (report.carried, report.survey.rows, report.survey.taken) == (True, 30, 270)
    assert (report.usable, str(report.survey.closed)) == (5, "2026-04-01")
    for again in (engine, quarter.engine()):
        assert 1 - again.budget().rules[0].left == pytest.approx(spent)
        assert again.budget().numbers == 5
        assert one(again) == (270, 0)
        assert one(again, "SUM(amount)") == (810, 0)
    assert one(engine, where="region = 'a'")[1] > 0
    assert months(engine) == ([93, 84, 93, 30], cost)
    assert quarter.engine().budget() == engine.budget()
    assert verify(quarter.policy) == []


def test_the_steward_reads_what_became_of_the_periods(orders, capsys, monkeypatch):
    """
    What is closed, what was read and what stays usable, also of a policy that was edited since.
    """
    monkeypatch.chdir(orders.folder)
    orders.today = APRIL + 2 * DAY
    orders.days(JANUARY, APRIL)
    orders.write()
    assert run(["init", "orders.yaml"]) == 0
    one(orders.engine())
    orders.put(JANUARY, ("a", 1))
    assert run(["rebuild", "orders.yaml"]) == run(["check", "orders.yaml"]) == 0
    orders.write(budget="0.9")
    assert run(["budget", "orders.yaml"]) == 0
    said = capsys.readouterr().out
    for line in (
        "270 rows read, 270 kept.\nPeriods before 2026-04-01 are closed.\nThe ledger is empty",
        "0 rows read, 0 kept.  270 records of closed periods were taken over.\nPeriods before "
        "2026-04-01 are closed.\nSnapshot 2: records never change, so every cell goes on.\n"
        "Numbers of earlier snapshots that stay usable: 1.\n",
        "The source has +1 records there: `rebuild --all` reads them.",
        "The history holds 1 measured numbers.",
    ):
        assert line in said


def test_what_comes_late_is_not_seen_until_all_is_read_again(quarter):
    """
    The steward is told; the cells, and what was said of them, stay as they are until then.
    """
    engine = quarter.engine()
    assert one(engine)[0] == 270
    assert check(quarter.policy).survey.late == 0
    quarter.put(JANUARY, ("a", 5))
    quarter.put(APRIL, ("b", 7))
    report = check(quarter.policy)
    assert (report.survey.late, str(report.survey.closed)) == (5, "2026-04-01")
    rebuild(quarter.policy)
    assert one(engine) == (270, 0)
    assert one(engine, where="day = '2026-01-01'")[0] == 3
    assert one(engine, where="day >= '2026-04-01'")[0] == 7
    report = rebuild(quarter.policy, everything=True)
    assert (report.usable, report.survey.taken, report.carried) == (0, 0, True)
    assert one(engine)[0] == 275
    assert [each.detail.get("taken_over_before") for each in audit(quarter.policy)
            if each.kind == "rebuild"] == ["2026-04-01", None]  # fmt: skip


def test_cells_are_taken_over_from_the_cube_of_an_older_version(quarter):
    """
    Which has a table of codes where there is a view of words now: the cells are the same.
    """
    assert one(quarter.engine())[0] == 270
    path = cube_path(state_folder(policies.load(quarter.policy)), 1)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE old AS FROM cells; DROP VIEW cells; DROP TABLE packed")
        connection.execute("ALTER TABLE old RENAME TO cells")
    assert one(quarter.engine(), where="region = 'a'")[0] == 180
    quarter.days(APRIL, APRIL + DAY)
    assert rebuild(quarter.policy).survey.taken == 270
    assert one(quarter.engine()) == (270, 0)
    cells = "FROM cells ORDER BY ALL"
    with duckdb.connect(str(cube_path(path.parent, 2)), read_only=True) as connection:
        taken = connection.execute(cells).fetchall()
    rebuild(quarter.policy, everything=True)
    with duckdb.connect(str(cube_path(path.parent, 3)), read_only=True) as connection:
        assert connection.execute(cells).fetchall() == taken
    assert len(taken) == 182


@pytest.mark.slow
def test_a_clock_that_goes_back_opens_no_period(quarter):
    """
    Nor does one that goes far ahead do more than close periods; all can be read again.
    """
    engine = quarter.engine()
    one(engine)
    for today in (JANUARY, date(2099, 1, 1), MARCH):
        quarter.today = today
        closed = rebuild(quarter.policy).survey.closed
        assert one(engine) == (270, 0)
    quarter.days(APRIL, APRIL + DAY)
    assert str(closed) == "2098-12-01"
    assert rebuild(quarter.policy).survey.rows == 0
    report = rebuild(quarter.policy, everything=True)
    assert (str(report.survey.closed), report.survey.rows) == ("2026-02-01", 273)


def test_a_lost_cube_is_built_again_from_what_the_source_has(quarter):
    """
    Of the same cells, its answers stay; of others, nothing is read again unless somebody says so,
    and then it is a new snapshot.
    """
    one(quarter.engine())
    quarter.days(APRIL, APRIL + 3 * DAY)
    rebuild(quarter.policy)
    state = state_folder(policies.load(quarter.policy))
    for late in (0, 1):
        quarter.put(JANUARY, ("a", late))
        (state / "cube-2.duckdb").unlink()
        if late:
            with pytest.raises(StateError, match="2026-04-01 are closed"):
                init(quarter.policy)
        report = rebuild(quarter.policy, everything=True) if late else init(quarter.policy)
        assert (report.again, report.snapshot) == (not late, 2 + late)
        assert one(quarter.engine())[0] == 270 + late
    assert (quarter.engine().budget().numbers, verify(quarter.policy)) == (1, [])


def test_cells_that_are_equal_may_be_of_others_where_records_change(orders):
    """
    Two records that changed places leave all cells as they were: the cube that is built again is
    of a new snapshot, in which both places have paid.
    """
    orders.records = "mutable"
    orders.put(JANUARY, ("a", 2), ("b", 2))
    orders.write(grain="day")
    init(orders.policy)
    cost = one(orders.engine(), where="region = 'a'")[1]
    file = orders.folder / "orders" / f"{JANUARY}.csv"
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([head, *reversed(lines), ""]))
    (state_folder(policies.load(orders.policy)) / "cube-1.duckdb").unlink()
    report = init(orders.policy)
    assert (report.again, report.snapshot, report.by_period) == (False, 2, True)
    engine = orders.engine()
    assert one(engine, where="region = 'b'")[1] == pytest.approx(cost)
    assert engine.budget().rules[0].spent == pytest.approx(2 * cost)


def test_a_clock_that_was_ahead_is_told(orders, capsys):
    """
    For as long as it has closed days that are to come.
    """
    orders.days(JANUARY, JANUARY + DAY)
    orders.write()
    init(orders.policy)
    orders.today = date.today() + timedelta(days=100)
    for _ in range(2):
        assert run(["rebuild", str(orders.policy)]) == 0
        assert "a day to come" in capsys.readouterr().out
        orders.today = JANUARY


def test_within_a_finer_period_records_may_have_moved_before(orders):
    """
    What was paid in a month is not carried over by day: a record may have moved within the month.
    By coarser periods it is.
    """
    orders.records = "mutable"
    orders.days(JANUARY, MARCH)
    orders.today = MARCH - DAY
    orders.write()
    init(orders.policy)
    cost = one(orders.engine(), where="day = '2026-02-03'")[1]
    orders.write(grain="day")
    apply(orders.policy, accept_weaker=True)
    with pytest.raises(StateError, match="are closed"):
        rebuild(orders.policy)
    report = rebuild(orders.policy, everything=True)
    assert not report.carried
    assert report.bases["shared"] == pytest.approx(cost)
    orders.write()
    apply(orders.policy, accept_weaker=True)
    assert rebuild(orders.policy).carried


@pytest.mark.slow
@pytest.mark.parametrize("records", ["mutable", "immutable"])
def test_a_machine_that_joins_with_a_copy_of_the_cube_reads_nothing(cluster, orders, records):
    """
    It answers as the first does, whatever the source has now.
    """
    orders.records, orders.rest = records, f"ledger: {cluster.database()}\n"
    orders.today = APRIL + 2 * DAY
    orders.days(JANUARY, APRIL)
    orders.write()
    init(orders.policy)
    known = one(orders.engine())[0]
    second = orders.folder / "second"
    here, there = (state_folder(policies.load(orders.policy), each) for each in (None, second))
    there.mkdir(parents=True, mode=0o700)
    for name in ("source.key", "cube-1.duckdb"):
        (there / name).write_bytes((here / name).read_bytes())
        (there / name).chmod(0o600)
    orders.put(JANUARY, ("a", 1))
    assert init(orders.policy, second) is None
    with closing(Engine.open(orders.policy, second, sampler=Silent())) as engine:
        assert one(engine) == (known, 0)
    assert one(orders.engine()) == (known, 0)
    (there / "cube-1.duckdb").write_bytes(b"another")
    with pytest.raises(StateError, match="are closed"):
        init(orders.policy, second)


@pytest.mark.slow
def test_two_machines_take_over_what_each_has(cluster, orders):
    """
    The second has the cube of the first snapshot, which is what the next was made from.
    """
    orders.rest = f"ledger: {cluster.database()}\n"
    orders.today = APRIL + 2 * DAY
    orders.days(JANUARY, APRIL)
    orders.write()
    init(orders.policy)
    second = orders.folder / "second"
    there = state_folder(policies.load(orders.policy), second)
    there.mkdir(parents=True, mode=0o700)
    key = state_folder(policies.load(orders.policy)) / "source.key"
    (there / key.name).write_bytes(key.read_bytes())
    (there / key.name).chmod(0o600)
    init(orders.policy, second)
    one(orders.engine())
    orders.put(JANUARY, ("a", 1))  # late: neither sees it
    orders.days(APRIL, APRIL + 3 * DAY)
    rebuild(orders.policy)
    report = init(orders.policy, second)
    assert (report.again, report.snapshot, report.survey.taken) == (True, 2, 270)
    with closing(Engine.open(orders.policy, second, sampler=Silent())) as engine:
        assert one(engine) == (270, 0)
    orders.days(APRIL + 3 * DAY, APRIL + 4 * DAY)
    rebuild(orders.policy, second)
    orders.put(APRIL, ("a", 1))
    report = init(orders.policy)  # of what the source has now, for which it needs a snapshot
    assert (report.again, report.snapshot, report.usable) == (False, 4, 1)
    assert one(orders.engine()) == (270, 0)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["build", "sync_folder", "RebuildReport"])
def test_killed_in_a_rebuild_there_is_the_old_cube_or_the_new_one(orders, step):
    """
    Never a mix: and what was said of closed months is free in either.
    """
    orders.days(JANUARY, APRIL)
    orders.today = date.today()  # the other process knows no other
    orders.write(grain="day")
    orders.policy.write_text(orders.policy.read_text().replace("closes: 2", "closes: 0"))
    init(orders.policy)
    one(orders.engine())
    orders.put(JANUARY, ("a", 5))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "rebuild", step, str(orders.policy)], check=False
    )
    assert done.returncode == 9
    engine = orders.engine()
    assert one(engine) == (270, 0)
    assert one(engine, where="day <= '2026-01-01'")[0] == 3
    assert rebuild(orders.policy).usable == 2
    assert one(engine) == (270, 0)
    assert verify(orders.policy) == []


@pytest.mark.slow
def test_with_partitions_begin_and_end_where_the_policy_says_so(orders):
    """
    Both read all anew, at no loss of protection: cells go on as they were.
    """
    orders.days(JANUARY, APRIL)
    orders.today = APRIL + 2 * DAY
    orders.write(grain="")
    init(orders.policy)
    engine = orders.engine()
    cost = one(engine)[1]
    engine.close()
    orders.write()
    report = apply(orders.policy)
    assert (report.changes, report.rebuilt.carried, report.rebuilt.usable) == ((), True, 0)
    engine = orders.engine()
    assert one(engine)[1] == cost
    assert rebuild(orders.policy).usable == 1
    orders.write(grain="day", rest="")
    assert apply(orders.policy).rebuilt is None  # from the next rebuild on
    orders.today += 10 * DAY
    assert str(rebuild(orders.policy).survey.closed) == "2026-04-11"
    engine = orders.engine()
    assert one(engine) == (270, 0)
    orders.write(grain="")
    with pytest.raises(StateError, match="2026-04-11 are closed") as refused:
        apply(orders.policy)
    assert "apply --all" in refused.value.hint
    assert apply(orders.policy, everything=True).rebuilt.usable == 0
    assert orders.engine().budget().rules[0].spent == pytest.approx(2 * cost)


@pytest.mark.slow
def test_a_restored_backup_takes_over_closed_cells_and_no_answers(orders):
    """
    What was spent since is charged to every cell, and what was answered before is not used.
    """
    orders.days(JANUARY, APRIL)
    orders.today = APRIL + 2 * DAY
    orders.write()
    init(orders.policy)
    engine = orders.engine()
    cost = one(engine)[1]
    rebuild(orders.policy)
    backup(orders.policy, orders.folder / "backup")
    one(engine, where="day < '2026-02-01'")
    engine.close()
    orders.put(JANUARY, ("a", 5))
    assert restore(orders.policy, orders.folder / "backup").missed
    engine = orders.engine()
    assert engine.budget().numbers == 0
    assert engine.budget().rules[0].spent == pytest.approx(2 * cost)
    report = rebuild(orders.policy)
    assert (report.survey.taken, report.usable) == (270, 0)
    assert one(engine)[0] == 270


DASHBOARD = (
    "SELECT day, COUNT(*) FROM orders WHERE day BETWEEN '{week}' AND '{last}' GROUP BY day",
    "SELECT day, COUNT(*) FROM orders WHERE day BETWEEN '2026-03-01' AND '{last}' GROUP BY day",
    "SELECT region, COUNT(*) FROM orders WHERE day <= '{last}' GROUP BY region"
    " WITH UTILITY (200, 0.05)",
    "SELECT SUM(amount) FROM orders WHERE day BETWEEN '{week}' AND '{last}'"
    " WITH UTILITY (2000, 0.05)",
)


def night(orders, engine, last):
    """Ask the dashboard; return the answers about each day, and what all cost."""
    said, cost = {}, 0
    for text in DASHBOARD:
        result = engine.session().execute(text.format(last=last, week=last - 6 * DAY))
        cost += result.cost
        if text.startswith("SELECT day"):
            said |= dict(result.rows)
    return said, cost


@pytest.mark.slow
@pytest.mark.parametrize(("grain", "records"), [("day", "mutable"), ("", "immutable")])
def test_thirty_nights_of_a_dashboard(orders, grain, records):
    """
    A table that grows by a day each night.  With partitions nothing is refused, a day that is
    closed costs nothing again and has the same answer; without, the same budget is soon spent.
    """
    orders.records = records
    orders.days(MARCH - 10 * DAY, MARCH)
    orders.today = MARCH + DAY
    orders.write(grain, "3")
    init(orders.policy)
    engine = Engine.open(orders.policy)  # with noise
    before, nights = {}, 0
    with closing(engine):
        for _ in range(30):
            last = orders.today - DAY
            orders.days(last, orders.today)
            report = rebuild(orders.policy)
            try:
                said, _ = night(orders, engine, last)
            except InsufficientBudgetError:
                assert not grain
                break
            nights += 1
            closed = [day for day in said if report.survey.closed and day < report.survey.closed]
            assert {day: said[day] for day in closed if day in before} == {
                day: before[day] for day in closed if day in before
            }
            before = {day: said[day] for day in closed}
            assert nights % 5 or night(orders, engine, last) == (said, 0)
            orders.today += DAY
        if grain:
            assert nights == 30
            assert len(before) > 25
            assert engine.budget().rules[0].left > 0.5
        else:
            assert nights < 25


# --- a life of orders against one that counts cell by cell ---------------------------------------

REGIONS = ("a", "b")
SPACE = Space((120, 2), (Box(0, 10),))
WHERES = ("day < '{}'", "day = '{}'", "day = '{}'", "day >= '{}'", "region = 'a' AND day <= '{}'")
OFFSET = st.integers(-6, 1)  # from the day that it is
STEPS = st.one_of(
    st.tuples(st.just("put"), OFFSET, st.sampled_from(REGIONS), st.integers(1, 3)),
    st.tuples(
        st.just("ask"), st.sampled_from(WHERES), OFFSET, st.sampled_from(["", "day", "region"])
    ),
    st.tuples(st.just("night"), st.integers(0, 3), st.sampled_from([False] * 6 + [True])),
)


class Reference:
    """What the cube must have and each cell has lost, by counting; it knows days, and no codes."""

    def __init__(self, orders, grain, closes):
        self.orders, self.grain, self.closes = orders, grain, closes
        self.cube, self.closed = {}, date.min
        self.lost = dict.fromkeys(
            ((JANUARY + day * DAY, region) for day in range(120) for region in REGIONS), 0
        )
        self.build(True)

    def build(self, everything):
        """Read what is not closed."""
        start = self.period(self.orders.today - self.closes * DAY)
        before = date.min if everything else self.closed
        kept = {cell: n for cell, n in self.cube.items() if cell[0] < before}
        read = {cell: n for cell, n in self.orders.counts.items() if cell[0] >= before}
        self.cube, self.closed = kept | read, max(start, before)
        if self.orders.records == "mutable":  # a record may be in any other cell of its period
            most = {}
            for (day, _), lost in self.lost.items():
                most[self.period(day)] = max(lost, most.get(self.period(day), 0))
            self.lost |= {
                (day, region): most[self.period(day)] for day, region in self.lost if day >= before
            }

    def period(self, day):
        """Return the first day of a day's period."""
        return day - day.weekday() * DAY if self.grain == "week" else day

    def answers(self, family):
        """Return the exact answers of a family, cell by cell, and what a record of each moves."""
        totals, moves = [0] * family.rows, {}
        coefficients = {
            part: term.dense((0, 1), SPACE) for part, term in family.query.parts.items()
        }
        for day in range(120):
            for place, region in enumerate(REGIONS):
                label = family.labels[tuple((day, place)[axis] for axis in family.axes)]
                cell, (count, amount) = (JANUARY + day * DAY, region), (
                    int(coefficients[part][day, place]) if part in coefficients else 0
                    for part in (0, 1)
                )  # fmt: skip
                if label >= 0 and (count or amount):
                    totals[label] += self.cube.get(cell, 0) * (count + 3 * amount)
                    moves[cell] = max(abs(count + value * amount) for value in (0, 10))
        return totals, moves

    def measured(self, row):
        """Add up what a measurement costs."""
        answers, moves = self.answers(row.family)
        assert list(row.answers) == answers
        for cell, most in moves.items():
            self.lost[cell] += most / row.scale


@pytest.mark.slow
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@given(st.lists(STEPS, min_size=15, max_size=25), st.sampled_from(["day", "week"]), st.data())
@pytest.mark.parametrize("records", ["immutable", "mutable"])
def test_what_is_inferred_from_is_true_of_the_cells_that_there_are(records, steps, grain, data):
    """
    Whatever comes late, and whenever it is rebuilt: every number in the history is the sum of the
    cells of today (none has noise); what a cell has lost by all snapshots' numbers, or what a
    record has that may change within its period, is what is charged, and within the budget.
    """
    closes = data.draw(st.integers(0, 3))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        orders = Orders(Path(folder), JANUARY + 20 * DAY, records=records)
        patch.setattr(snapshots, "today", lambda policy: orders.today)
        orders.days(JANUARY + 12 * DAY, JANUARY + 21 * DAY)
        orders.write(grain, "0.5")
        orders.policy.write_text(
            orders.policy.read_text().replace("closes: 2", f"closes: {closes}")
        )
        init(orders.policy)
        reference, engine = Reference(orders, grain, closes), orders.engine()
        for step, *what in steps:
            match step:
                case "put":
                    orders.put(orders.today + what[0] * DAY, (what[1], what[2]))
                case "night":
                    orders.today += what[0] * DAY
                    report = rebuild(orders.policy, everything=what[1])
                    reference.build(what[1])
                    assert report.survey.closed == reference.closed
                    assert report.survey.kept + report.survey.taken == sum(reference.cube.values())
                case "ask":
                    ask(engine, reference, what[0], orders.today + what[1] * DAY, what[2])
            agrees(engine, reference)
        with closing(orders.engine()) as other:
            agrees(other, reference)
            assert other.budget() == engine.budget()
        engine.close()


def ask(engine, reference, where, day, by):
    """Ask for a count, or a sum, by groups or without."""
    what = "SUM(amount)" if day.day % 3 == 0 else "COUNT(*)"
    text = f"SELECT {f'{by}, ' if by else ''}{what} FROM orders WHERE {where.format(day)}"
    before = engine.ledger.sequence()
    with suppress(InsufficientBudgetError):
        engine.session().execute(text + (f" GROUP BY {by}" if by else ""))
    for row in engine.ledger.measurements(before):
        reference.measured(row)


def agrees(engine, reference):
    """What is known is true, and what is charged was lost."""
    most = max(reference.lost.values())
    assert engine.budget().rules[0].spent == pytest.approx(most, abs=1e-9)
    assert most <= 0.5
    (accountant,) = engine.planner._accountants.values()
    for block in accountant.history.blocks:
        known = accountant.history.answers[block.start : block.start + block.family.rows]
        assert known == reference.answers(block.family)[0]


@pytest.mark.parametrize("order", [[], ["--all"], ["--accept-weaker"]])
def test_a_hint_keeps_the_flags_that_were_given(orders, capsys, order):
    """
    What is told to be typed, one after the other, ends with the policy in force.
    """
    orders.days(JANUARY, APRIL)
    orders.today = APRIL + 2 * DAY
    orders.write()
    init(orders.policy)
    orders.policy.write_text(orders.policy.read_text().replace("to: 2026-04-30", "to: 2026-05-31"))
    command = ["apply", *order, str(orders.policy)]
    while len(command) < 4:
        assert run(command) == 2
        hint = capsys.readouterr().err.partition("hint: ")[2]
        longer = hint.partition("privacy-proxy ")[2].partition(";")[0].split()
        assert set(longer) > set(command)
        command = longer
    assert run(command) == 0
