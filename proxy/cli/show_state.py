"""What the command line prints of a dataset's state: for its data steward and its auditors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from proxy.cli.plain import Grid
from proxy.cli.show import amount, console, listing, plain, print_json

if TYPE_CHECKING:
    from proxy.engine.beginning import WarmedUp
    from proxy.ledger import AuditLine
    from proxy.steward import (
        ApplyReport,
        CheckReport,
        GuardReport,
        Price,
        RebuildReport,
        Report,
        RestoreReport,
        Rule,
    )

UNIT = 2**40  # charges per alpha
WARM = "What warm_up says was measured; `budget` says what is left."
UNREADABLE = 0.01  # of the records: more of a column is worth a warning
LOST = 0.1  # of the records of the snapshot before: where no more are left is, too


def made(
    report: Report | RebuildReport | WarmedUp | None, as_json: bool, warm: bool = False
) -> None:
    """Print what `init` made; ``warm``: and has measured what the policy wants known first."""
    if as_json:
        print_json(report)
        return
    from proxy.engine.beginning import WarmedUp
    from proxy.steward import RebuildReport

    if isinstance(report, WarmedUp):
        console().print(WARM)
        return
    if report is None:
        console().print("This folder follows the ledger now, with the cube that was copied.")
        return
    if isinstance(report, RebuildReport):
        rebuilt(report, False)
        return
    out = console()
    out.print(_kept(report))
    _warn(report)
    _closed(report)
    if warm:
        out.print(WARM)
    else:
        out.print("The ledger is empty: the whole budget is there.")


def _warn(report: Report) -> None:
    """Print which columns are hardly read."""
    for rule in (*report.attributes, *report.measures):
        if rule.unreadable > UNREADABLE * report.rows:
            console().print(f"warning: {_unread(rule, report)}; see `check`")


def check(report: CheckReport, as_json: bool) -> None:
    """Print what a policy does to its data, rule by rule."""
    if as_json:
        print_json(report)
        return
    out = console()
    survey, empty = report.survey, report.survey.cells.empty if report.survey.cells else 0
    out.print(
        f"{report.dataset}: {report.cells:,} cells, {empty:,} of them empty; state: {report.state}"
    )
    out.print(_kept(survey))
    out.print("This has read the data and counts exactly: for you alone, not for analysts.")
    _columns(survey)
    for said in survey.headers:
        out.print(said)
    for rule in (*survey.attributes, *survey.measures):
        if rule.unreadable or any(look.column == rule.name for look in survey.looks):
            out.print(_unread(rule, survey))
    if survey.closed:
        _closed(survey)
        if survey.late:
            out.print(f"The source has {survey.late:+,} records there: `rebuild --all` reads them.")
    _prices(report.prices)
    if report.moved:
        out.print("The source has changed since the cube was built: `rebuild` reads it again.")
    if report.state != "in force" and report.spent:
        paid = _by_history(report.spent) or "nothing"
        out.print(f"Paid by the dearest cell under the policy in force, at most: {paid}.")
    for change in report.changes:
        out.print(f"protects less than before: {change}")
    for twin in report.twins:
        out.print(f"the same source has another budget: {twin}; what both spend adds up")


def _columns(survey: Report) -> None:
    """Print what each column's rules meet, a line each."""
    counts = ("nulls", "outside", "unreadable", "clipped", "dropped")
    headers = [("column", False), *((name, True) for name in counts)]
    cells = survey.cells.columns if survey.cells else {}
    lines = []
    for rule in (*survey.attributes, *survey.measures):
        of_cells = [f"{n:,}" for n in cells.get(rule.name, ())] or ["", ""]
        lines.append([rule.name, *(f"{getattr(rule, c):,}" for c in counts), *of_cells])
    console().print(Grid([*headers, ("cells", True), ("empty", True)], lines))


def _unread(rule: Rule, survey: Report) -> str:
    """Return how many values of a column are not read, and what they look like."""
    looks = [look for look in survey.looks if look.column == rule.name]
    like = ", ".join(f"{look.records:,} {look.kind}" for look in looks)
    if not rule.unreadable:
        return f"{rule.name}: of what is outside have {like}"
    share = rule.unreadable / max(survey.rows, 1)
    return f"{rule.name}: {rule.unreadable:,} ({share:.1%}) cannot be read: {like}"


def _prices(prices: Sequence[Price]) -> None:
    """Print what typical questions would cost, were nothing known yet."""
    headers = [("question", False), ("within", True), ("confidence", True)]
    headers += [("cost", True), ("the budget buys", True)]
    lines = [
        [
            price.question,
            f"±{price.half_width:,.10g}",
            f"{1 - price.delta:.4g}",
            amount(price.cost),
            f"{price.times:,}",
        ]
        for price in prices
    ]
    out = console()
    out.print(Grid(headers, lines))
    out.print("All groups of a GROUP BY cost what one does; what follows from answers is free.")


def applied(report: ApplyReport, as_json: bool) -> None:
    """Print what applying a policy did."""
    if as_json:
        print_json(report)
        return
    out = console()
    if not report.applied:
        out.print(f"The policy of {report.dataset} was in force already.")
        return
    out.print(f"The policy of {report.dataset} is in force now.")
    for change in report.changes:
        out.print(f"protects less than before: {change}")
    if report.rebuilt:
        out.print("What decides the cell of a record has changed, so the cube was rebuilt.")
        rebuilt(report.rebuilt, False)


def rebuilt(report: RebuildReport, as_json: bool) -> None:
    """Print what a new snapshot begins with."""
    if as_json:
        print_json(report)
        return
    out = console()
    out.print(_kept(report.survey))
    _warn(report.survey)
    if report.before and (now := report.survey.kept + report.survey.taken) < LOST * report.before:
        out.print(
            f"warning: {now:,} records are in the cube now, and {report.before:,} were before; "
            "see `check`"
        )
    _closed(report.survey)
    if report.again:
        out.print(
            f"The cube of snapshot {report.snapshot} was built again from its own source: what was "
            "spent stays spent."
        )
        return
    if report.carried:
        how = "records never change, so every cell goes on."
        if report.by_period:
            how = "a period's cells start with the most that any of them had paid."
        out.print(f"Snapshot {report.snapshot}: {how}")
        if report.survey.closed:
            out.print(f"Numbers of earlier snapshots that stay usable: {report.usable:,}.")
        return
    out.print(
        f"Snapshot {report.snapshot}: every cell starts with the most that any had paid: "
        f"{_by_history(report.bases) or 'nothing'}."
    )


def audit(lines: Sequence[AuditLine], as_json: bool, wide: bool = False) -> None:
    """Print the audit log, a line each; what was free has no number."""
    if as_json:
        print_json([plain(line) | {"cost": line.cost / UNIT} for line in lines])
        return
    headers = [("line", True), ("time (UTC)", False), ("user", False), ("kind", False)]
    headers += [("numbers", True), ("cost", True), ("statement", False)]
    cells = [
        [
            str(line.seq or ""),
            f"{line.time:%Y-%m-%d %H:%M:%S}",
            line.user,
            line.kind,
            f"{line.answers:,}" if line.answers else "",
            amount(line.cost / UNIT) if line.cost else "",
            line.statement.strip() or _detail(line.detail),
        ]
        for line in lines
    ]
    listing(headers, cells, wide)


def _detail(detail: Mapping[str, object]) -> str:
    """Return what a line without a statement says of itself; hashes are for programs."""
    return ", ".join(
        f"{key}: {_said(value)}"
        for key, value in detail.items()
        if value not in ([], {}, None) and key not in ("digest", "anchor_hash", "charged")
    )


def _said(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(_said, value))
    return value if isinstance(value, str) else json.dumps(plain(value))


def verified(problems: Sequence[str], as_json: bool) -> None:
    """Print what does not agree in a ledger."""
    if as_json:
        print_json({"problems": problems})
        return
    out = console()
    for problem in problems:
        out.print(problem)
    if not problems:
        out.print(
            "Everything agrees: the chain of lines, the rows that they cover, the anchor, the cube."
        )


def guards(reports: Sequence[GuardReport], as_json: bool) -> None:
    """Print how close each guarded claim is."""
    if as_json:
        print_json(reports)
        return
    out = console()
    if not reports:
        out.print("The policy has no guards.")
        return
    headers = [("claim", False), ("for each", False), ("cap", True), ("spent", True)]
    headers += [("left", True), ("certain at most", True), ("allowed", True)]
    lines = [
        [
            report.claim,
            ", ".join(report.for_each),
            amount(report.cap),
            ("" if report.exact else "at most ") + amount(report.spent),
            amount(report.left),
            f"{report.bound:.2%}",
            f"{report.confidence:.2%}",
        ]
        for report in reports
    ]
    out.print(Grid(headers, lines))


def restored(report: RestoreReport, as_json: bool) -> None:
    """Print what putting back a backup charged."""
    if as_json:
        print_json(report)
        return
    out = console()
    if report.missed:
        out.print("The backup is older than the ledger was; what was spent since is charged.")
    else:
        out.print("The backup is as new as the ledger was.")
    out.print(f"Paid by the dearest cell: {_by_history(report.charged) or 'nothing'}.")
    if report.unknown:
        out.print(
            f"Nobody knows who spent {amount(report.unknown)} of it: every analyst and group with "
            "a cap is charged with all of that, as `budget --user` and `users` show."
        )
    if report.rebuilt:
        rebuilt(report.rebuilt, False)
    elif report.cube != "kept":
        out.print(f"There is no cube yet ({report.cube}).")


def _kept(survey: Report) -> str:
    lost = [
        f"{count:,} {why}"
        for count, why in (
            (survey.unitless, "without a privacy unit"),
            (survey.beyond, "beyond the rows that a unit may have"),
        )
        if count
    ]
    said = f"{survey.rows:,} rows read, {survey.kept:,} kept{''.join(f', {x}' for x in lost)}."
    if survey.taken:
        said += f"  {survey.taken:,} records of closed periods were taken over."
    return said


def _closed(survey: Report) -> None:
    """Print which periods are closed."""
    if survey.closed:
        console().print(f"Periods before {survey.closed} are closed.")
        if survey.closed > datetime.now().date() + timedelta(days=1):  # whatever the time zone
            console().print("warning: that is a day to come: a clock was ahead when they closed")


def _by_history(spent: Mapping[str, float]) -> str:
    """Return amounts by history; where there is but the shared one, its own."""
    paid = {name: value for name, value in spent.items() if value}
    if set(paid) == {"shared"}:
        return amount(paid["shared"])
    return ", ".join(f"{amount(value)} ({name})" for name, value in paid.items())
