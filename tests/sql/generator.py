"""Random statements over the survey, of the shapes that people and their tools write."""

import random

TEXTS = ["'clerk'", "'O''Neil''s'", "'50%_off'", "''", "'Ärztin'", "'nobody'"]
REGIONS = ["'north'", "'south'", "'east'", "'west'", "'North'"]
COMPARE = ["=", "<>", "<", "<=", ">", ">=", "!="]


class Generator:
    """Statements drawn from one seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def of(self, *choices):
        return self.draw.choice(choices)

    def integer(self):
        return str(self.draw.randint(-3, 41))

    def no(self):
        return self.of("", "not ")

    def list_of(self, one, most):
        return ", ".join(one() for _ in range(self.draw.randint(1, most)))

    def atom(self):
        """One condition on one column."""
        draw, no = self.draw, self.no
        comparison = draw.choice(COMPARE)
        return self.of(
            f"age {comparison} {self.integer()}",
            f"children {comparison} {draw.randint(-3, 6)}",
            f"income {self.of('<', '>=')} {self.of('-10', '0', '5', '20', '50')}",
            f"income {self.of('<=', '>')} {self.of('-11', '-1', '4', '19', '49')}",
            f"income between {self.of('-10', '0', '5')} and {self.of('4', '19', '49')}",
            f"region {comparison} {draw.choice(REGIONS)}",
            f'"Job Title" {comparison} {draw.choice(TEXTS)}',
            f"region {no()}in ({self.list_of(lambda: draw.choice(REGIONS), 3)})",
            f"age {no()}in ({self.list_of(self.integer, 4)})",
            f"children {no()}in (0, {draw.randint(-2, 5)}{self.of('', ', null')})",
            f"age {no()}between {self.of('', 'symmetric ')}{self.integer()} and {self.integer()}",
            f"score {comparison} {self.of('-1.5', '0', '.25', '2.50', '1e1', '-0.0')}",
            f"joined {comparison} {self.of('', 'date ')}'2020-0{draw.randint(1, 3)}-11'",
            f"{self.of('married', 'children')} is {no()}null",
            f"married is {no()}{self.of('true', 'false', 'unknown')}",
            "married",
            f"married = {self.of('true', 'false')}",
            f"(age > {self.integer()}) is {no()}true",
            f"children is {no()}distinct from {self.of('1', 'null')}",
            f"age {comparison} '{self.integer()}'",
        )

    def condition(self, depth=3):
        """A tree of conditions."""
        if depth == 0 or self.draw.random() < 0.3:
            return self.atom()
        kind = self.draw.random()
        if kind < 0.2:
            return f"not ({self.condition(depth - 1)})"
        if kind < 0.25:
            return f"NOT {self.atom()}"
        word = self.of("and", "or")
        parts = [self.condition(depth - 1) for _ in range(self.draw.randint(2, 3))]
        return f"({f' {word} '.join(parts)})"

    def number(self):
        """A linear combination of aggregates."""
        draw = self.draw
        return self.of(
            "count(*)",
            "COUNT(*)",
            f"count({self.of('age', 'children', 'married', 'wage', 'bonus', 'region')})",
            f"sum({self.of('age', 'children', 'score', 'wage', 'bonus')})",
            f"{draw.randint(-3, 3)} * count(*) {self.of('+', '-')} {draw.randint(0, 20)}",
            f"sum(wage) - {draw.randint(1, 900)} * count(*)",
            f"sum(age) / {self.of('10.0', '4.0')}",
            f"count(*) - count({self.of('children', 'bonus')})",
            f"-(sum(bonus) + {draw.randint(1, 9)})",
            f"count(*) filter (where {self.condition(1)})",
            f"sum({self.of('wage', 'age')}) filter (where {self.atom()})",
        )

    def statement(self):
        """A statement."""
        groups = [
            "region",
            "zone",
            "income",
            '"Job Title"',
            "married",
            "children",
            "score",
            "month",
        ]
        keys = self.draw.sample(groups, self.of(0, 0, 1, 1, 2))
        numbers = [f"{self.number()} AS n{i}" for i in range(self.draw.randint(1, 3))]
        text = f"SELECT {', '.join([*keys, *numbers])} FROM survey"
        if self.draw.random() < 0.8:
            text += f" WHERE {self.condition()}"
        if keys:
            text += f" GROUP BY {', '.join(keys)}"
        return text
