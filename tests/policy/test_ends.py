"""The schema and the loader agree on how small and how large each number may be."""

import json
from fractions import Fraction

import jsonschema
import pytest

from proxy.errors import PolicyError
from proxy.policy import json_schema, load
from proxy.policy.keys import POLICY
from proxy.policy.kinds import INT64, Number, decimal
from proxy.policy.table import Either, Many, Named, Record

HERE = "@"  # the place of the number
BASE = {
    "dataset": "people",
    "source": {"engine": "duckdb", "path": "people.csv"},
    "max_records": INT64,
    "outside": "drop",
    "nulls": "drop",
    "attributes": {"age": {"range": [0, 9]}},
    "privacy": {"budget": 1_000_000, "unit": "row"},
}
UNIT = {"unit": {"column": "person", "max_rows": HERE}}
GUARD = {"claim": "COUNT(*) BETWEEN 0 AND 4", "for_each": ["age"], "confidence": HERE}
MEASURE = {"clip": [0, 1], "quantum": 1}
PLACES = {  # a numeric key -> what is put over the base; a key without one fails
    "max_records": {"max_records": HERE},
    "attributes.<attribute>.range[]": {"attributes": {"age": {"range": [HERE, HERE]}}},
    "measures.<measure>.clip[]": {
        "max_records": 10, "measures": {"pay": MEASURE | {"clip": [0, HERE]}}},
    "measures.<measure>.quantum": {
        "max_records": 10, "measures": {"pay": MEASURE | {"clip": [0, HERE], "quantum": HERE}}},
    "measures.<measure>.utility.half_width": {
        "measures": {"pay": MEASURE | {"utility": {"half_width": HERE, "delta": 0.1}}}},
    "measures.<measure>.utility.delta": {
        "measures": {"pay": MEASURE | {"utility": {"half_width": 9, "delta": HERE}}}},
    "measures.<measure>.utility.percent": {
        "measures": {"pay": MEASURE | {"utility": {"percent": HERE, "delta": 0.1}}}},
    "utility.percent": {"utility": {"percent": HERE, "delta": 0.1}},
    "utilities.<number>.half_width": {"utilities": {"AVG(*)": {"half_width": HERE, "delta": 0.1}}},
    "utilities.<number>.percent": {"utilities": {"AVG(*)": {"percent": HERE, "delta": 0.1}}},
    "utilities.<number>.delta": {"utilities": {"AVG(*)": {"half_width": 9, "delta": HERE}}},
    "utility.half_width": {"utility": {"half_width": HERE, "delta": 0.1}},
    "utility.delta": {"utility": {"half_width": 9, "delta": HERE}},
    "privacy.budget": {"privacy": {"budget": HERE, "unit": "row"}},
    "privacy.unit.max_rows": {"privacy": {"budget": 1} | UNIT},
    "privacy.cells[].budget": {
        "privacy": BASE["privacy"] | {"cells": [{"where": "age = 1", "budget": HERE}]}},
    "privacy.guards[].confidence": {
        "privacy": BASE["privacy"] | {"budget": 1, "guards": [GUARD]}},
    "privacy.floor": {"privacy": BASE["privacy"] | {"floor": HERE}},
    "privacy.history_size.total": {"privacy": BASE["privacy"] | {"history_size": {"total": HERE}}},
    "privacy.history_size.analyst": {
        "privacy": BASE["privacy"] | {"history_size": {"total": INT64, "analyst": HERE}}},
    "privacy.warm_up[].alpha": {
        "privacy": BASE["privacy"] | {"warm_up": [{"attributes": ["age"], "alpha": HERE}]}},
    "privacy.per.day": {"privacy": BASE["privacy"] | {"per": {"day": HERE}}},
    "privacy.per.week": {"privacy": BASE["privacy"] | {"per": {"week": HERE}}},
    "analysts.<analyst>.budget": {"analysts": {"ann": {"budget": HERE}}},
    "partition.closes": {
        "attributes": {"day": {"from": "2026-01-01", "to": "2026-01-31", "nulls": "drop",
                               "outside": "drop"}},
        "records": "immutable", "partition": {"column": "day", "grain": "day", "closes": HERE}},
    "groups.<group>.budget": {"groups": {"few": {"budget": HERE}}},
}  # fmt: skip
STEP = Fraction(1, 10**6)


def numbers(kind, path=""):
    """Yield every numeric key below a kind of the table, with its kind."""
    match kind:
        case Number():
            yield path, kind
        case Record(keys):
            for key in keys:
                yield from numbers(key.kind, f"{path}.{key.name}" if path else key.name)
        case Named(of=of, what=what):
            yield from numbers(of, f"{path}.<{what}>")
        case Many(of=of):
            yield from numbers(of, f"{path}[]")
        case Either(kinds):
            for each in kinds:
                yield from numbers(each, path)


def ends(number):
    """Yield the ends of what a schema allows: a number inside, and one outside."""
    schema = number.schema()
    step = 1 if number.whole else STEP
    for end, inwards in (("inimum", 1), ("aximum", -1)):
        if (at := schema.get(f"m{end}")) is not None:
            at = Fraction(str(at))
            past = at * (1 - inwards * STEP) if at and not number.whole else at - inwards * step
            yield at, past
            continue
        opened = schema.get(f"exclusiveM{end}")
        if opened is not None:
            yield Fraction(opened) + inwards * step, Fraction(opened)


def written(places, number):
    """Return a policy, as YAML, with a number in its place."""
    text = json.dumps(BASE | places)
    return text.replace(f'"{HERE}"', decimal(number))


CASES = [(path, inside, past) for path, kind in numbers(POLICY) for inside, past in ends(kind)]


@pytest.mark.parametrize(("path", "inside", "past"), CASES)
def test_the_ends_of_the_schema_are_the_loader_s(path, inside, past, tmp_path):
    """
    What is at an end is accepted by both, what is past it is refused by both.
    """
    (tmp_path / "people.csv").write_text("age\n1\n")
    file = tmp_path / "people.yaml"
    file.write_text(written(PLACES[path], inside))
    load(file)
    jsonschema.validate(json.loads(file.read_text()), json_schema())
    file.write_text(written(PLACES[path], past))
    with pytest.raises(PolicyError):
        load(file)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(file.read_text()), json_schema())
