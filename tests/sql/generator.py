"""Random statements over the survey, of the shapes that people and their tools write."""

import random

TEXTS = ["'clerk'", "'O''Neil''s'", "'50%_off'", "''", "'Ärztin'", "'nobody'"]
REGIONS = ["'north'", "'south'", "'east'", "'west'", "'North'"]
PATTERNS = ["'%t%'", "'n%'", "'_ast'", "'50\\%%'", "'%o_t%'", "''", "'%'"]
QUOTED = ["$$north$$", r"E'no\x72th'", "$q$west$q$", r"e'\'\\'"]
COMPARE = ["=", "<>", "<", "<=", ">", ">=", "!="]
COLUMNS = ["region", "zone", '"Job Title"', "married", "children", "score"]
BINNED = ["income", "month"]


class Generator:
    """Statements drawn from one seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def of(self, *choices):
        return self.draw.choice(choices)

    def chance(self, share):
        return self.draw.random() < share

    def integer(self):
        return str(self.draw.randint(-3, 41))

    def no(self):
        return self.of("", "not ")

    def list_of(self, one, most):
        return ", ".join(one() for _ in range(self.draw.randint(1, most)))

    def compare(self):
        return self.draw.choice(COMPARE)

    # --- conditions --------------------------------------------------------------------------

    def atom(self):
        """One condition."""
        draw, no = self.draw, self.no
        return self.of(
            f"age {self.compare()} {self.integer()}",
            f"children {self.compare()} {draw.randint(-3, 6)}",
            f"income {self.of('<', '>=')} {self.of('-10', '0', '5', '20', '50')}",
            f"income {self.of('<=', '>')} {self.of('-11', '-1', '4', '19', '49')}",
            f"income between {self.of('-10', '0', '5')} and {self.of('4', '19', '49')}",
            f"month {self.of('<', '>=')} '2020-{draw.randint(1, 12):02}-01'",
            f"region {self.compare()} {draw.choice(REGIONS)}",
            f'"Job Title" {self.compare()} {draw.choice(TEXTS)}',
            f"region {no()}in ({self.list_of(lambda: draw.choice(REGIONS), 3)})",
            f"age {no()}in ({self.list_of(self.integer, 4)})",
            f"children {no()}in (0, {draw.randint(-2, 5)}{self.of('', ', null')})",
            f"age {no()}between {self.of('', 'symmetric ')}{self.integer()} and {self.integer()}",
            f"children {self.compare()} {self.of('any', 'all')}"
            f"('{{{self.list_of(self.element, 3)}}}')",
            f"age {self.of('= any', '<> all')}(array[{self.list_of(self.integer, 4)}])",
            f"region {no()}like {self.of('any', 'all')}(array[{self.list_of(self.pattern, 2)}])",
            f"region {self.compare()} {draw.choice(QUOTED)}",
            f"score {self.compare()} {self.of('-1.5', '0', '.25', '2.50', '1e1', '-0.0')}",
            f"joined {self.compare()} {self.of('', 'date ')}'2020-0{draw.randint(1, 3)}-11'",
            f"{self.of('married', 'children')} is {no()}null",
            f"married is {no()}{self.of('true', 'false', 'unknown')}",
            "married",
            f"married = {self.of('true', 'false')}",
            f"(age > {self.integer()}) is {no()}true",
            f"children is {no()}distinct from {self.of('1', 'null')}",
            f"age {self.compare()} '{self.integer()}'",
            f"{self.of('region', 'zone')} {no()}{self.of('like', 'ilike')} {draw.choice(PATTERNS)}",
            f'"Job Title" {no()}like {draw.choice(PATTERNS)}',
            f"{self.scalar()} {self.compare()} {self.scalar()}",
            f"extract(month from joined) {self.compare()} {draw.randint(1, 4)}",
            f"case when {self.plain()} then {self.of('married', 'true')} else age > 9 end",
            f"coalesce(married, {self.of('true', 'false')})",
        )

    def element(self):
        """An element of an array literal."""
        return self.of("1", "-2", " 5", "null", '"0"')

    def pattern(self):
        return self.draw.choice(PATTERNS)

    def plain(self):
        """A condition without CASE."""
        return self.of("age > 20", "region = 'south'", "children is null", "score > 0", "married")

    def scalar(self):
        """A whole number."""
        return self.of(
            "age",
            "children",
            self.integer(),
            f"age % {self.draw.randint(1, 7)}",
            f"age / {self.draw.randint(1, 9)}",
            f"(children + {self.draw.randint(-3, 9)})",
            "children * 7",
            "length(region)",
            "coalesce(children, -1)",
            "greatest(children, 2)",
            f"abs(age - {self.integer()})",
            f"case when {self.plain()} then age else {self.integer()} end",
            f"nullif(age, {self.integer()})",
        )

    def condition(self, depth=None):
        """A tree of conditions."""
        depth = self.of(1, 1, 2, 2, 2, 3) if depth is None else depth
        if depth == 0 or self.chance(0.3):
            return self.atom()
        kind = self.draw.random()
        if kind < 0.2:
            return f"not ({self.condition(depth - 1)})"
        if kind < 0.25:
            return f"NOT ({self.atom()})"
        word = self.of("and", "or")
        parts = [self.condition(depth - 1) for _ in range(self.draw.randint(2, 3))]
        return f"({f' {word} '.join(parts)})"

    # --- numbers and groups ------------------------------------------------------------------

    def number(self):
        """A function of aggregates."""
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
            f"sum(case when {self.condition(1)} then {self.of('1', 'age', 'wage', 'bonus')} "
            f"{self.of('', 'else 0 ')}end)",
            f"sum({self.scalar()})",
            f"sum(wage * {self.of('age', 'children', '(age + 1)')})",
            f"count({self.scalar()})",
            f"avg({self.of('wage', 'bonus', 'age', 'children', 'score')})",
        )

    def key(self):
        """A grouping expression."""
        return self.of(
            f"age / {self.draw.randint(5, 20)}",
            f"age % {self.draw.randint(2, 5)}",
            "age > 20",
            "children > 1",
            "upper(region)",
            "left(region, 1)",
            "length(region)",
            "coalesce(children, 0)",
            f"case when {self.plain()} then 'a' when age > 30 then 'b' else 'c' end",
            f"case when {self.plain()} then region end",
            "date_trunc('month', joined)::date",
            "extract(month from joined)",
            "extract(dow from joined)",
            "round(score)",
        )

    # --- statements --------------------------------------------------------------------------

    def statement(self):
        """A statement, and whether it shows a binned column."""
        kind = self.draw.random()
        if kind < 0.75:
            return self.select()
        if kind < 0.85:
            return self.outer()
        if kind < 0.89:
            return self.flattened()
        if kind < 0.92:
            return self.paired()
        return self.stacked() if kind < 0.97 else self.united()

    def where(self):
        return f" WHERE {self.condition()}" if self.chance(0.8) else ""

    def select(self):
        """Numbers by groups."""
        columns = COLUMNS if self.chance(0.7) else COLUMNS + BINNED
        keys = self.draw.sample(columns, self.of(0, 0, 1, 1, 2))
        shown = [(key, key) for key in keys]
        if self.chance(0.4):
            made = self.key()
            shown.append((f"{made} AS k", self.of("k", made)))
        numbers = [f"{self.number()} AS n{i}" for i in range(self.draw.randint(1, 3))]
        text = f"SELECT {', '.join([*(s for s, _ in shown), *numbers])} FROM survey{self.where()}"
        if shown:
            text += f" GROUP BY {', '.join(key for _, key in shown)}"
            if self.chance(0.2):
                text += f" HAVING count(*) {self.of('>', '>=')} {self.draw.randint(1, 30)}"
        return text, any(key in BINNED for key in keys)

    def outer(self):
        """A result that is filtered, aggregated or ranked."""
        key = self.draw.choice(COLUMNS)
        inner = (
            f"SELECT {key} AS k, count(*) AS n, sum(wage) AS s FROM survey{self.where()} "
            f"GROUP BY {key} HAVING count(*) > {self.draw.randint(0, 20)}"
        )
        shape = self.of(
            "SELECT k, n FROM ({}) t WHERE n > 30",
            "SELECT max(n) AS a, min(n) AS b, count(*) AS c FROM ({}) t",
            "SELECT sum(n) AS a, sum(s) AS b FROM ({}) t",
            "SELECT k, n, rank() OVER (ORDER BY n) AS r FROM ({}) t",
            "SELECT k, 100.0 * n / sum(n) OVER () AS share FROM ({}) t",
            "WITH t AS ({}) SELECT a.k, a.n - b.n AS d FROM t a JOIN t b ON a.k > b.k",
            "SELECT n / 10 AS tens, count(*) AS c FROM ({}) t GROUP BY n / 10",
        )
        return shape.format(inner), False

    def flattened(self):
        """An aggregation of rows that a subquery chooses and computes."""
        made = self.scalar()
        inner = f"SELECT {made} AS x, region, wage AS w, married FROM survey{self.where()}"
        text = f"SELECT region, count(*) AS n, sum(x) AS a, sum(w + 1) AS b FROM ({inner}) t"
        text += self.of("", " WHERE x > 3", " WHERE married OR x is null")
        return f"{text} GROUP BY region", False

    def paired(self):
        """An aggregation of rows joined with public ones, some keys of which are there twice."""
        rows = self.list_of(lambda: f"({self.draw.randint(-2, 6)}, {self.of('null', '1', '7')})", 5)
        join = self.of("JOIN", "LEFT JOIN")
        on = f"v.k = {self.of('s.children', 's.age % 5', 's.age')}"
        text = f"FROM survey s {join} (VALUES (9, 4), {rows}) AS v(k, n) ON {on}{self.where()}"
        if join == "JOIN" and self.chance(0.3):
            text = text.replace(" ON ", f" ON s.age {self.compare()} v.k AND ", 1)
        numbers = "count(*) AS n, count(v.n) AS m, sum(n) AS a, sum(wage * n) AS b"
        return self.totals(numbers, text)

    def totals(self, numbers, text):
        """Numbers of all rows, or of each region."""
        if self.chance(0.5):
            return f"SELECT {numbers} {text}", False
        return f"SELECT region, {numbers} {text} GROUP BY region", False

    def stacked(self):
        """An aggregation of the rows of several SELECTs."""
        parts = [
            f"SELECT region, {self.scalar()} AS x, {self.of('wage', 'bonus', 'age')} AS w "
            f"FROM survey{self.where()}"
            for _ in range(self.draw.randint(2, 3))
        ]
        text = f"FROM ({' UNION ALL '.join(parts)}) t{self.of('', ' WHERE x > 3')}"
        numbers = "count(*) AS n, count(x) AS m, sum(x) AS a, sum(w) AS b"
        return self.totals(numbers, text)

    def united(self):
        """Two results, one above the other."""
        parts = [
            f"SELECT '{name}' AS k, {number} AS n FROM survey{self.where()}"
            for name, number in (("a", "count(*)"), ("b", "count(children) + count(*)"))
        ]
        return " UNION ALL ".join(parts), False
