# ruff: noqa: E501
"""What each strategy makes of a data team's month: 30 statements, three analysts, ten days.

    python examples/strategies/run.py [--days 10] [--only cps1988] [--to FOLDER]    some minutes

Each day each of three analysts asks some of the statements of a workload, in an order of their own,
and how good an answer must be varies a little each time.  Every statement runs through the engine,
on a durable ledger, at the budget of the policy; ``auto`` is told the workload beforehand, and
chooses by simulation.  Printed for each strategy: which share of the statements is answered, which
share is free, and what the dearest cell has paid.  The figures are kept in ``results``, and of them
README.md and its plot are written (which needs matplotlib: the extra ``plots``).
"""

import argparse
import json
import os
import random
import re
import shutil
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

from proxy.engine import Engine, init
from proxy.engine.strategy import CHOSEN
from proxy.errors import InsufficientBudgetError
from proxy.sql.parse.grammar import split

HERE = Path(__file__).parent
DATASETS = ("cps1988", "meps1996")
STRATEGIES = ("paper", "topup", "pieces", "hierarchy", "auto")
ANALYSTS = ("ann", "ben", "cleo")
SHARE = 0.4  # of the statements that an analyst asks in a day
VARIED = (0.8, 1.25)  # what half-widths are multiplied by
STYLES = {  # colours that the colour-blind can tell apart, and marks and lines that need no colour
    "paper": ("#0072B2", "o", "-"),
    "topup": ("#D55E00", "D", "--"),
    "pieces": ("#009E73", "P", "-."),
    "hierarchy": ("#CC79A7", "X", ":"),
    "auto": ("#000000", "*", "-"),
}


@dataclass
class Course:
    """What one strategy did with what was asked, day by day."""

    asked: list[int] = field(default_factory=list)  # statements so far
    answered: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)  # by the dearest cell
    chosen: str = ""  # by auto

    def line(self):
        """Return the figures in the end: shares answered and free, and what was spent."""
        asked = self.asked[-1]
        return self.answered[-1] / asked, self.free[-1] / asked, self.spent[-1]


def asked(statements, days):
    """Return who asks which statement on each day: (analyst, text)."""
    rng = random.Random(16)
    found = []
    for _ in range(days):
        day = []
        for analyst in ANALYSTS:
            some = rng.sample(statements, round(SHARE * len(statements)))
            day += [(analyst, varied(text, rng)) for text in some]
        found.append(day)
    return found


def varied(text, rng):
    """Return a statement whose answers must be somewhat more or less exact."""
    body, utility = text.split(" WITH UTILITY ")

    def other(match):
        return f"({float(match[1]) * rng.uniform(*VARIED):.3g}, "

    return f"{body} WITH UTILITY {re.sub(r'[(]([0-9.]+), ', other, utility)}"


def statements_of(name):
    """Return the statements of a workload."""
    return [text.strip() for text in split((HERE / f"{name}.sql").read_text()) if text.strip()]


def policy(folder, name, strategy):
    """Write the policy of a dataset with a strategy, without caps of its own on analysts."""
    text = (HERE.parents[1] / "policies" / f"{name}.yaml").read_text()
    text = re.sub(r"^analysts:\n(?:[ \t].*\n)*", "", text, flags=re.M)
    text = text.replace("../examples/", "").replace("privacy:", f"privacy:\n  strategy: {strategy}")
    shutil.copy(HERE.parent / f"{name}.csv.gz", folder)
    shutil.copy(HERE / f"{name}.sql", folder)
    path = folder / f"{name}-{strategy}.yaml"
    path.write_text(f"{text}\nworkload: {name}.sql\n")
    return path


def course(name, strategy, days):
    """Ask all that is asked under a strategy."""
    found, answered, free, count = Course(), 0, 0, 0
    with tempfile.TemporaryDirectory() as place:
        path = policy(Path(place), name, strategy)
        init(path, Path(place) / "state")
        with closing(Engine.open(path, Path(place) / "state")) as engine:
            found.chosen = chosen(engine)
            sessions = {analyst: engine.session(analyst) for analyst in ANALYSTS}
            for day in asked(statements_of(name), days):
                for analyst, text in day:
                    count += 1
                    try:
                        result = sessions[analyst].execute(text)
                    except InsufficientBudgetError:
                        continue
                    answered += 1
                    free += not result.cost
                found.asked.append(count)
                found.answered.append(answered)
                found.free.append(free)
                found.spent.append(max(rule.spent for rule in engine.budget().rules))
    return found


def chosen(engine):
    """Return in words what auto follows."""
    detail = engine.ledger.last(CHOSEN) if engine.policy.privacy.strategy == "auto" else None
    if not detail:
        return ""
    bases = [
        f"{' and '.join(base['of'])} of {' × '.join(base['axes']) or 'all'}"
        for base in detail["bases"]
    ]
    return "; ".join(bases) if bases else detail["strategy"]


def table(courses):
    """Return the figures as lines of Markdown."""
    lines = [
        "| data | strategy | answered | free | spent |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for (name, strategy), found in courses.items():
        answered, free, spent = found.line()
        lines.append(f"| {name} | {strategy} | {answered:.1%} | {free:.1%} | {spent:.3f} |")
    return "\n".join(lines)


PAGE = """# Strategies, on two data sets

What `privacy.strategy` makes of the same questions: 30 statements that a data team would have, about wages
([`cps1988.sql`](cps1988.sql), 28,155 people) and about who is insured ([`meps1996.sql`](meps1996.sql), {people}). Three
analysts ask {some} of them each, every day for {days} days, in an order of their own; how good an answer must be varies
by a quarter either way. The budget is that of the [policies](../../policies/), {budget}.

```sh
pip install '.[plots]'
python examples/strategies/run.py
```

runs it, through the engine and with real noise, and writes this page. What is asked is the same each time, and what it costs
depends on what is asked; only the means (`AVG`), which are met in steps, depend a little on the noise.

{table}

*Answered* and *free* are shares of the {count} statements; *spent* is what the dearest cell has paid. `hierarchy` measures what
`pieces` does: no axis here is long enough for a tree.

![Budget spent and share answered, by day](strategies.png)

`auto` was given each workload beforehand (the policy's key `workload`), simulated the strategies over it when the dataset was
made, and chose:

{chosen}
{words}
`privacy-proxy plan POLICY WORKLOAD.sql` prints such a simulation before anything is spent.
"""


def page(courses, days):
    """Return the text of README.md."""
    chosen = "\n".join(
        f"- {name}: {found.chosen}"
        for (name, strategy), found in courses.items()
        if strategy == "auto"
    )
    return PAGE.format(
        people="8,802",
        some=round(SHARE * 30),
        days=days,
        budget=1,
        table=table(courses),
        count=next(iter(courses.values())).asked[-1],
        chosen=chosen,
        words=f"\n{words(courses)}\n",
    )


def words(courses):
    """Return what the figures say, as far as it follows from them."""
    found = []
    for name in dict.fromkeys(name for name, _ in courses):
        mine = {strategy: each.line() for (n, strategy), each in courses.items() if n == name}
        most = max(mine, key=lambda s: (round(mine[s][0], 3), -mine[s][2]))
        least = min(mine, key=lambda s: (round(mine[s][0], 3), -mine[s][2]))
        found.append(
            f"On {name}, {most} answers {mine[most][0]:.1%} for {mine[most][2]:.3f}, "
            f"{least} {mine[least][0]:.1%} for {mine[least][2]:.3f}."
        )
    return "\n".join(found)


def draw(courses, path):
    """Draw budget spent and share answered by day, for each data set."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _ in courses))
    figure = Figure(figsize=(7.2, 2.6 * len(names) + 0.4), layout="constrained")
    places = figure.subplots(len(names), 2, squeeze=False)
    for (name, strategy), found in courses.items():
        row = places[names.index(name)]
        colour, mark, line = STYLES[strategy]
        days = range(1, len(found.asked) + 1)
        shares = [a / b for a, b in zip(found.answered, found.asked, strict=True)]
        for axes, values in zip(row, (found.spent, shares), strict=True):
            axes.plot(days, values, color=colour, marker=mark, linestyle=line, markersize=4,
                      linewidth=1.2, label=strategy)  # fmt: skip
        row[0].set_ylabel(f"{name}: budget spent")
        row[1].set_ylabel(f"{name}: share answered")
    for axes in places.ravel():
        axes.set_xlabel("day")
        axes.set_ylim(0, 1.05)
        axes.grid(alpha=0.3, linewidth=0.5)
    handles, labels = places[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=80)


def kept(folder, days):
    """Return the courses of so many days that are kept in a folder."""
    found = {}
    for name in DATASETS:
        for strategy in STRATEGIES:
            path = folder / f"{name}-{strategy}.json"
            if path.exists():
                each = Course(**json.loads(path.read_text()))
                if len(each.asked) == days:
                    found[name, strategy] = each
    return found


def main():
    """Run what is asked under each strategy, print the figures, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--only", choices=DATASETS, action="append", help="data sets")
    parser.add_argument("--strategy", choices=STRATEGIES, action="append")
    parser.add_argument("--to", type=Path, default=HERE, help="where README.md is written")
    options = parser.parse_args()
    results = options.to / "results"
    results.mkdir(exist_ok=True)
    for name in options.only or DATASETS:
        for strategy in options.strategy or STRATEGIES:
            found = course(name, strategy, options.days)
            text = json.dumps(asdict(found), ensure_ascii=False) + "\n"
            (results / f"{name}-{strategy}.json").write_text(text)
            answered, free, spent = found.line()
            print(
                f"{name:10}{strategy:11}{answered:8.1%} answered {free:8.1%} free {spent:8.3f} spent"
                f"  {found.chosen}",
                flush=True,
            )
    courses = kept(results, options.days)
    if len(courses) == len(DATASETS) * len(STRATEGIES):  # a part makes no page
        (options.to / "README.md").write_text(page(courses, options.days))
        draw(courses, options.to / "strategies.png")


if __name__ == "__main__":
    main()
