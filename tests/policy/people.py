"""A right policy, and others made of it."""

GOOD = """\
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 1_000_000
outside: drop
nulls: group
attributes:
  age: {type: integer, range: [18, 62]}
  seen: {edges: [-5, 0, 5, 10], outside: clamp, cut: snap}
  smokes: {values: ['no', 'yes'], nulls: drop}
  region: {values: [north, south, west], column: Region}
  born: {from: 2020-01-01, to: 2020-12-31, bin: month}
measures:
  wage: {clip: [0, 2000], quantum: 0.01}
privacy:
  budget: 0.1
  unit: row
  cells: [{where: "age < 20", budget: 0.05}]
  guards: [{claim: "COUNT(*) BETWEEN 0 AND 5", for_each: [age, region], confidence: 0.95}]
  per: {day: 0.01, week: 0.05}
analysts: {alice: {budget: 0.05}, bi: {spend: off}}
groups: {survey: {budget: 0.02, history: own}}
utility: {half_width: 100, delta: 0.05}
timezone: Europe/Berlin
"""
LIST = "[north, south, west]"


def changed(*changes, text=GOOD):
    """Return the good policy with parts of it replaced."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def partitioned(partition="{column: born, grain: quarter}", *changes):
    """Return the good policy with partitions."""
    born = "born: {from: 2020-01-01, to: 2020-12-31, bin: month"
    parts = ("utility:", f"records: immutable\npartition: {partition}\nutility:")
    return changed(*changes, text=changed((born, f"{born}, nulls: drop"), parts))


def axis(policy, declaration, **files):
    """Return the attribute `age` under another declaration."""
    text = changed(("{type: integer, range: [18, 62]}", declaration))
    return policy(text, **files).domain.attributes[0]
