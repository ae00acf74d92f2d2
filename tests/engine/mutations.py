"""Statements with accidents: what a fuzzer sends to the engine, the same for the same seed."""

import datetime
import math
import random
import re
from decimal import Decimal

from tests.sql.generator import Generator
from tests.sql.test_fuzz import CORPUS, ODD, PIECES

VALID = [text for text in CORPUS if re.match(r"(?i)\(?(select|with|values)\b", text)]
EXTREME = [
    "0", "-1", "1", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e308",
    "1e309", "-1e-320", "0.1", "1" * 400, "''", "'NaN'", "'Infinity'", "'-Infinity'", "NaN",
    "'" + "x" * 5000 + "'", "'é😀\u202e'", "'\0'", "'%'", "'\\'", "'{x}'", "'%s'", "NULL", "TRUE",
    "DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '2020-02-30'", "INTERVAL '1000000 years'",
    "ARRAY[1, 2]", "(SELECT 1)", "'0'::int", "CAST('x' AS int)", "1/0",
    "x'00'", "E'\\x00'", "U&'d'", "$$a$$", "$1", ":x", "?", "%s", "%(x)s",
]  # fmt: skip
NUMBERS = [
    "0", "-1", "1e-300", "1e300", "1e-9", "1e18", "1e19", "NaN", "Infinity", "NULL", "'5'", "", "5",
    "60", "99999999999999999999", "1 PERCENT", "0 PERCENT", "1e300 PERCENT", "-5 PERCENT",
    "5%", "x", "1/0", "(SELECT 1)", "1e-8 PERCENT",
]  # fmt: skip
DELTAS = ["0", "1", "2", "-0.1", "0.05", "0.999999999999", "1e-300", "1e-9", "NaN", "0.05, 3", ""]
SETTINGS = ["utility", "spend", "columns", "hide_empty", "nonnegative", "answers", "utilitty", ""]
JUNK = [
    "on", "off", "true", "'60, 0.1'", "'(300, 0.2)'", "'0, 0'", "'x'", "''", "DEFAULT",
    "NaN", "1e300", "'1e999999999, 0.05'", "'5 PERCENT, 0.05'", "'NaN, NaN'", "$$on$$",
    "'" + "9" * 5000 + ", 0.05'", "'é'", "'{x}'", "", "on, off", "'a''b'", "-- x",
    "(SELECT COUNT(*) FROM survey)",
]  # fmt: skip
COMMANDS = [
    "BEGIN", "COMMIT", "ROLLBACK", "START TRANSACTION READ ONLY", "SAVEPOINT a", "RELEASE a",
    "ROLLBACK TO a", "DISCARD ALL", "DEALLOCATE ALL", "RESET ALL", "RESET privacy.utility",
    "RESET x", "SHOW BUDGET", "SHOW HISTORY", "SHOW ALL", "SHOW privacy.utility",
    "SHOW", "SHOW x.y", "SELECT * FROM privacy.budget", "SELECT * FROM privacy.history", "EXPLAIN",
    "EXPLAIN UTILITY", "EXPLAIN UTILITY BEGIN", "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN UTILITY EXPLAIN UTILITY SELECT 1",
    "", ";", ";;", "-- x", "/* x", "COPY survey TO STDOUT", "DELETE FROM survey", "VACUUM",
    "DECLARE c CURSOR FOR SELECT COUNT(*) FROM survey", "FETCH 1 FROM c", "TABLE survey",
    "CALL f()", "PREPARE a AS SELECT 1", "EXECUTE a", "SET", "SET privacy.", "SET TIME ZONE 'x'",
    "SELECT sum(spent) / count(*) FROM privacy.budget", "VALUES (1), (2)", "SELECT 1 / 0",
]  # fmt: skip
LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")
WORDS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)
LANGUAGES = ["mysql", "bigquery", "duckdb", "snowflake", "tsql", "cobol"]


class Mutations:
    """Statements from one seed; each with the parameters that go with it, mostly none."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self._generator = Generator(seed)

    def statement(self):
        """A text, and its parameters or None."""
        roll = self.draw.random()
        if roll < 0.06:
            return self._command(), None
        text = self._wanting(self._valid())
        if roll < 0.16:
            return text, None
        if roll < 0.20:
            return self._parameters(text)
        for _ in range(self.draw.choice((1, 1, 1, 1, 1, 2, 3))):
            text = self.draw.choice(
                (self._deleted, self._swapped, self._doubled, self._odd, self._spliced,
                 self._nested, self._quoted, *[self._replaced] * 4, *[self._wanting] * 2)
            )(text)  # fmt: skip
        return text, None

    def _valid(self):
        if self.draw.random() < 0.5:
            return self._generator.statement()[0]
        return self.draw.choice(VALID)

    def _wanting(self, text):
        """Say how good the numbers must be, within reason or not."""
        draw, roll = self.draw, self.draw.random()
        if roll < 0.35:
            return text
        if roll < 0.8:
            pair = (
                draw.choice(("50", "200", "4000", "90000", "30 PERCENT")),
                draw.choice(("0.1", ".2")),
            )
        else:
            pair = draw.choice(NUMBERS), draw.choice(DELTAS)
        said = f"({', '.join(pair)})"
        form = draw.random()
        if form < 0.8:
            return f"{text} WITH UTILITY {said}"
        if form < 0.9:
            return f"{text} WITH UTILITY {said}, n {said}"
        return f"/*+ UTILITY{said} */ {text}"

    def _command(self):
        draw, roll = self.draw, self.draw.random()
        if roll < 0.4:
            scope = draw.choice(("", "", "LOCAL ", "SESSION "))
            sign = draw.choice(("=", "=", "TO", ""))
            return f"SET {scope}privacy.{draw.choice(SETTINGS)} {sign} {draw.choice(JUNK)}"
        if roll < 0.7:
            text = self._valid()
            return f"EXPLAIN UTILITY {text if roll < 0.55 else self._odd(text)}"
        return draw.choice(COMMANDS)

    def _parameters(self, text):
        """Put placeholders where literals were, and odd values beside them."""
        draw = self.draw
        text = text.replace("%", "%%")
        text = LITERAL.sub(lambda match: "%s" if draw.random() < 0.7 else match[0], text)
        values = [
            0, -1, 2**63, 10**400, 1e308, math.nan, math.inf, "", "x" * 3000, "\0", "é😀",
            "'", b"\0",
            None, True, Decimal("NaN"), Decimal("1e400"), datetime.date.min, datetime.datetime.max,
            datetime.timedelta(days=9), [1, 2], [], object, {"a": 1}, "north", 3,
        ]  # fmt: skip
        count = text.count("%s") + draw.choice((0, 0, 0, 0, 1, -1))
        return text, tuple(draw.choice(values) for _ in range(max(count, 0)))

    def _words(self, text):
        return WORDS.findall(text) or ["x"]

    def _deleted(self, text):
        words = self._words(text)
        at = self.draw.randrange(len(words))
        del words[at : at + self.draw.randint(1, 3)]
        return "".join(words)

    def _swapped(self, text):
        words = self._words(text)
        one, two = (self.draw.randrange(len(words)) for _ in range(2))
        words[one], words[two] = words[two], words[one]
        return "".join(words)

    def _doubled(self, text):
        words = self._words(text)
        one, two = sorted(self.draw.randrange(len(words)) for _ in range(2))
        return "".join([*words[:two], " ", *words[one:two], *words[two:]])

    def _replaced(self, text):
        """Put an extreme value where a literal is."""
        spans = [match.span() for match in LITERAL.finditer(text)]
        if not spans:
            return self._odd(text)
        start, end = self.draw.choice(spans)
        return text[:start] + self.draw.choice(EXTREME) + text[end:]

    def _odd(self, text):
        words = self._words(text)
        words.insert(self.draw.randrange(len(words)), f" {self.draw.choice(ODD + PIECES)} ")
        return "".join(words)

    def _spliced(self, text):
        """Begin like one statement and go on like another."""
        one, two = self._words(text), self._words(self._valid())
        return "".join(one[: self.draw.randrange(len(one))] + two[self.draw.randrange(len(two)) :])

    def _nested(self, text):
        depth = self.draw.choice((1, 2, 30, 300))
        shape = self.draw.random()
        if shape < 0.4:
            return "(" * depth + text + ")" * (depth - (shape < 0.05))
        if shape < 0.7:
            return f"SELECT * FROM ({text}) AS t{depth}"
        match = self.draw.choice(list(re.finditer(r"\w+", text)) or [re.match("", text)])
        return f"{text[: match.start()]}{'(' * depth}{match[0]}{')' * depth}{text[match.end() :]}"

    def _quoted(self, text):
        """Open a quotation or comment that does not end, or hide a part of the text."""
        at = self.draw.randrange(len(text) + 1)
        return (
            text[:at]
            + self.draw.choice(("'", '"', "/*", "--", "$$", "\\", "\0", "/* x */", ";"))
            + text[at:]
        )
