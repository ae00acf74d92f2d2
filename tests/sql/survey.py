"""A small dataset with an axis of every kind, its records, and exact answers to linear queries.

``exact`` adds the records up one by one, with nothing but their codes: the plain counterpart of
what the proxy does with cubes, factors and labels.
"""

import datetime
import random
from bisect import bisect_right
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from proxy import policy as policies
from proxy.inference.query import COUNT
from proxy.sql import Evaluator, Program, compile_statement, postprocess

RECORDS = 600
COLUMNS = {
    "age": "integer",
    "income": "integer",
    "region": "text",
    "zone": "text",
    "Job Title": "text",
    "married": "boolean",
    "children": "integer",
    "score": "numeric",
    "joined": "date",
    "month": "date",
    "seen": "timestamp",
    "wage": "double precision",
    "bonus": "double precision",
}
ZONES = {"north": "cold", "east": "cold", "south": "warm", "west": "warm"}


@cache
def policy():
    """The policy of survey.yaml, one column renamed to what needs quoting."""
    loaded = policies.load(Path(__file__).with_name("survey.yaml"))
    attributes = tuple(
        replace(a, name="Job Title") if a.name == "Job_Title" else a
        for a in loaded.domain.attributes
    )
    return replace(loaded, domain=replace(loaded.domain, attributes=attributes))


@cache
def evaluator():
    return Evaluator(policy().domain)


@cache
def records():
    """The records, every value inside the domain, measures clipped and on their grid."""
    draw = random.Random(7)
    domain = policy().domain
    rows = []
    for _ in range(RECORDS):
        row = {}
        for attribute in domain.attributes:
            if attribute.null and draw.random() < 0.2:
                row[attribute.name] = None
            elif attribute.edges:
                row[attribute.name] = _inside(draw, *draw.choice(_bins(attribute)))
            else:
                row[attribute.name] = draw.choice(attribute.values)
        row["zone"] = ZONES[row["region"]]
        row["wage"] = draw.randint(0, 200_000) / 100
        row["bonus"] = None if draw.random() < 0.3 else draw.randint(-100, 100) / 2
        rows.append({name: row[name] for name in COLUMNS})
    return rows


def _bins(attribute):
    return list(zip(attribute.edges, attribute.edges[1:], strict=False))


def _inside(draw, low, high):
    if isinstance(low, datetime.datetime):
        return low + datetime.timedelta(
            minutes=draw.randrange(int((high - low).total_seconds() // 60))
        )
    if isinstance(low, datetime.date):
        return low + datetime.timedelta(days=draw.randrange((high - low).days))
    return draw.randrange(low, high)


@cache
def coded():
    """Of each record, the code on each axis and the value of each measure (quanta, or None)."""
    domain = policy().domain
    rows = []
    for record in records():
        codes = []
        for attribute in domain.attributes:
            value = record[attribute.name]
            if value is None:
                codes.append(attribute.size - 1)
            elif attribute.edges:
                codes.append(bisect_right(attribute.edges, value) - 1)
            else:
                codes.append(attribute.codes[value])
        amounts = [record[m.name] for m in domain.measures]
        quanta = [
            None if a is None else int(Fraction(str(a)) / m.quantum)
            for a, m in zip(amounts, domain.measures, strict=True)
        ]
        rows.append((tuple(codes), quanta))
    return rows


def shown():
    """The records with each value inside a bin replaced by the bin's lower edge."""
    attributes = policy().domain.attributes
    return [
        record | {a.name: a.value(code) for a, code in zip(attributes, codes, strict=True)}
        for record, (codes, _) in zip(records(), coded(), strict=True)
    ]


@cache
def columns():
    """The codes of all records on each axis; the quanta of each measure and where it is present."""
    codes = [np.array(axis) for axis in zip(*(codes for codes, _ in coded()), strict=True)]
    measures = list(zip(*(quanta for _, quanta in coded()), strict=True))
    present = [np.array([q is not None for q in column], dtype=object) for column in measures]
    quanta = [np.array([q or 0 for q in column], dtype=object) for column in measures]
    return codes, quanta, present


def exact_rows(family):
    """The answers to a family's rows, as fractions: every record adds its coefficient."""
    codes, quanta, present = columns()
    total = np.zeros(RECORDS, dtype=object)  # Python's integers: nothing overflows
    for part, term in family.query.parts.items():
        value = np.full(RECORDS, term.scale, dtype=object)
        for factor in term.factors:
            value = value * factor.array[tuple(codes[a] for a in factor.axes)].astype(object)
        if part != COUNT:
            measure = (part - 1) // 2
            value = value * (quanta[measure] if part % 2 else present[measure])
        total = total + value
    labels = np.broadcast_to(family.labels[tuple(codes[a] for a in family.axes)], (RECORDS,))
    answers = [0] * family.rows
    for label, value in zip(labels.tolist(), total, strict=True):
        if label >= 0:
            answers[label] += value
    return [answer * family.grid for answer in answers]


def exact(number):
    """The values of a number in every row, as the engine would hand them on without noise."""
    answers = exact_rows(number.family)
    if number.kind == "count":
        return [round(a + number.shift) for a in answers]
    if number.kind == "sum":
        return [float(a + number.shift) for a in answers]
    below = exact_rows(number.denominator)
    return [
        float(number.shift + u / c) if c > 0 else None for u, c in zip(answers, below, strict=True)
    ]


def program(text, parameters=None, settings=None):
    """The program of a statement; results that choose its rows have no noise."""
    released = {}
    while True:
        compiled = compile_statement(
            text, policy(), evaluator(), parameters, settings, released=dict(released)
        )
        if not isinstance(compiled, Program) or not compiled.first:
            return compiled
        released |= {key: _released(each).rows for key, each in compiled.first}


def companion(number, what):
    """What is known of a number without noise: its interval is the number itself."""
    values = exact(number)
    if what.what == "present":
        return [value >= 1 for value in values]
    if what.what == "confidence":
        return [0.95 for _ in values]
    if what.what == "probability":
        low, high = what.least, what.most
        return [
            float((low is None or low <= value) and (high is None or value <= high))
            for value in values
        ]
    return values


def run(text, parameters=None, settings=None):
    """The result of a statement with the noise left out."""
    compiled = program(text, parameters, settings)
    assert isinstance(compiled, Program)
    return _released(compiled)


def _released(compiled):
    releases = compiled.releases
    values = [[exact(number) for number in release.numbers] for release in releases]
    companions = [
        [[companion(number, what) for what in number.companions] for number in release.numbers]
        for release in releases
    ]
    return postprocess(compiled, values, evaluator(), companions)


def plain(value):
    """A value as it can be compared between databases: numbers as floats."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return float(value) + 0.0  # no negative zero
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date()
    return value
