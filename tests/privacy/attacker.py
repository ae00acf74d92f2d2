"""An adaptive attacker: the next statement is a function of everything that was seen so far."""

import random
from hashlib import sha256

from tests.privacy.worlds import AGES, SEXES, TOWNS

AGGREGATES = (
    *["COUNT(*)"] * 7, *["SUM(pay)"] * 3, "COUNT(pay)", "COUNT(pay)", "SUM(age)", "COUNT(*) - 7",
    "SUM(pay) - 2 * COUNT(*)", "3 * COUNT(*) + SUM(age)", "COUNT(*) + COUNT(pay)", "AVG(pay)",
    "AVG(age)",
)  # fmt: skip
COMMANDS = (
    "SHOW BUDGET", "SHOW HISTORY", "EXPLAIN UTILITY SELECT COUNT(*) FROM people WHERE age = 0",
    "SET privacy.spend = 'off'", "SET privacy.spend = 'on'", "SET privacy.utility = '9, 0.3'",
    "RESET ALL", "SELECT * FROM people", "SELECT COUNT(*) FROM people WHERE age = 'x'",
    "SELECT spent FROM privacy.budget", "SELECT COUNT(*) FROM people WHERE 1 = 0",
    "SELECT 1 / (COUNT(*) - COUNT(*)) FROM people WITH UTILITY (9, 0.5)",
)  # fmt: skip
WIDTHS = ("0.4", "1", "2", "3.5", "5", "8", "14", "25", "60")
DELTAS = ("0.4", "0.2", "0.05", "0.001")


class Attacker:
    """Knows the cell of the record that may be there, and asks for it in every way."""

    def __init__(self, seed, cell, world):
        self._seed = seed
        age, sex, town = cell
        self._exact = f"age = {age} AND sex = '{SEXES[sex]}' AND town = '{TOWNS[town]}'"
        self._parts = (f"age = {age}", f"sex = '{SEXES[sex]}'", f"town = '{TOWNS[town]}'")
        self._world = world
        self._asked = []

    def move(self, transcript):
        """Return the next step from what was seen so far: (what, proxy, user, text)."""
        seen = sha256(transcript[-1].encode() if transcript else b"").digest()
        rng = random.Random(f"{self._seed} {len(transcript)} {int.from_bytes(seen)}")
        user, proxy = rng.choice(self._world.users), int(rng.random() < 0.25)
        roll = rng.random()
        if roll < 0.04:
            return "rebuild", proxy, user, ""
        if roll < 0.1:
            return "look", proxy, user, ""
        roll = rng.random()
        if roll < 0.1:
            return "ask", proxy, user, rng.choice(COMMANDS)
        if roll < 0.25 and self._asked:
            text = rng.choice(self._asked)  # again: alike, or with other utility
            if rng.random() < 0.5:
                text = text.split(" WITH UTILITY")[0] + self._utility(rng, text)
        else:
            text = self._select(rng)
        self._asked.append(text)
        return "ask", proxy, user, text

    def _select(self, rng):
        count = rng.choice((1, 1, 1, 1, 2, 2, 3))
        numbers = [f"{rng.choice(AGGREGATES)} AS n{i}" for i in range(count)]
        groups = []
        if rng.random() < 0.25:
            groups = rng.sample(("age", "sex", "town"), rng.choice((1, 1, 2)))
        text = f"SELECT {', '.join([*groups, *numbers])} FROM {self._rows(rng)}"
        if groups:
            text += f" GROUP BY {', '.join(groups)}"
            if rng.random() < 0.2:
                text += " HAVING COUNT(*) > 2"
            text += f" ORDER BY {', '.join(rng.sample([*groups, 'n0'], len(groups)))}"
            if rng.random() < 0.2:
                text += " LIMIT 2"
        elif rng.random() < 0.08:
            text = f"SELECT max(n0) - min(n0) AS m FROM ({text}) AS t"
        return text + self._utility(rng, text)

    def _rows(self, rng):
        """Records, in one of eight cases those of two conditions, where both hold twice."""
        if rng.random() < 0.125:
            parts = [f"SELECT age, sex, town, pay FROM people{self._where(rng)}" for _ in "ab"]
            return f"({' UNION ALL '.join(parts)}) AS u"
        return f"people{self._where(rng)}"

    def _where(self, rng):
        if rng.random() < 0.06:  # rows that a result chooses, which is released first
            inner = rng.choice((f"WHERE {self._exact} ", f"WHERE {self._parts[0]} ", ""))
            if rng.random() < 0.5:
                return f" WHERE age > (SELECT COUNT(*) FROM people {inner})"
            largest = f"SELECT town FROM people {inner}GROUP BY town ORDER BY COUNT(*) DESC LIMIT 1"
            return f" WHERE town IN ({largest})"
        roll = rng.random()
        if roll < 0.2:
            return ""
        if roll < 0.5:
            return f" WHERE {self._exact}"
        if roll < 0.6:
            return f" WHERE NOT ({self._exact})"
        if roll < 0.8:
            joint = rng.choice((" AND ", " OR "))
            return " WHERE " + joint.join(rng.sample(self._parts, 2))
        return f" WHERE age {rng.choice(('=', '<>', '>='))} {rng.choice(AGES)}" + rng.choice(
            ("", " AND sex = 'f'", " OR town = 'b'", " AND town IN ('a', 'b')")
        )

    @staticmethod
    def _utility(rng, text):
        roll = rng.random()
        if roll < 0.06 and "SUM" not in text and "AVG" not in text and "pay" not in text:
            return ""
        if roll < 0.15 and "AVG" not in text:
            return f" WITH UTILITY ({rng.choice((40, 90, 300))} PERCENT, {rng.choice(DELTAS)})"
        width = float(rng.choice(WIDTHS)) * (6 if "SUM" in text else 1)
        return f" WITH UTILITY ({width:g}, {rng.choice(DELTAS)})"
