"""The page Ask, as a browser's requests see it: prices, results, errors, what is kept."""

import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from proxy.console import asking, visits
from proxy.console.completion import starters
from proxy.engine import Engine, Session
from proxy.errors import QueryCanceledError
from proxy.server.console_door import ConsoleDoor
from tests.server.serving import password

PAGE = "/d/cps1988/ask"
COUNT = "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (100, 0.05)"
GROUPS = "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region WITH UTILITY (200, 0.05)"
PRICE = 0.0298  # of COUNT, about


def told(browser, what, **fields):
    """The answer to a request of the page."""
    return json.loads(browser.submit(f"{PAGE}/{what}", fragment=False, **fields))


def ran(browser, sql):
    """The result of a statement that is run at its price."""
    price = told(browser, "preview", sql=sql)
    return told(browser, "run", sql=sql, **({"limit": price["limit"]} if "limit" in price else {}))


def paid(browser):
    """How many statements have been paid for."""
    return len(told(browser, "run", sql="SHOW HISTORY")["rows"])


def test_a_price_is_told_and_nothing_is_spent(browser):
    price = told(browser, "preview", sql=COUNT)
    assert price["limit"] == pytest.approx(PRICE, rel=1e-2)
    assert (price["free"], price["refused"], price["left"]) == (False, "", "2 left")
    assert price["numbers"] == [{"label": "COUNT(*)", "groups": 1, "measured": 1, "half": "100"}]
    assert paid(browser) == 0


def test_a_statement_costs_its_price_and_is_free_the_second_time(browser):
    price = told(browser, "preview", sql=COUNT)
    result = told(browser, "run", sql=COUNT, limit=price["limit"])
    assert (result["cost"], result["measured"]) == (price["cost"], 1)
    again = told(browser, "preview", sql=COUNT)
    assert (again["free"], again["limit"]) == (True, 0)
    assert told(browser, "run", sql=COUNT, limit=0)["free"]
    assert paid(browser) == 1


@pytest.mark.parametrize("limit", ["", "x", "nan", "-1", "0", "0.01"])
def test_a_statement_that_costs_more_than_was_shown_is_not_run(browser, limit):
    """Also without a price that makes sense: the price is told instead."""
    answer = told(browser, "run", sql=COUNT, limit=limit)
    assert answer.keys() == {"dearer"}
    assert answer["dearer"]["limit"] == pytest.approx(PRICE, rel=1e-2)
    assert paid(browser) == 0


@pytest.mark.parametrize("shown", [0.01, 0.0])
def test_nobody_pays_more_than_was_shown_even_if_the_price_was_wrong(browser, monkeypatch, shown):
    """As if it had risen since: what it affords is given, and nothing where it was to be free."""
    wrong = asking.Price(shown, shown, 1.0, "", 1.0)
    monkeypatch.setattr(asking, "price", lambda explained: wrong)
    answer = told(browser, "run", sql=COUNT, limit=shown)
    monkeypatch.undo()
    if shown:
        assert 0 < float(answer["cost"]) <= shown
        assert "rather than 100" in answer["notices"][0]
    else:
        assert answer["error"]["refused"]
    assert paid(browser) == bool(shown)
    assert not told(browser, "preview", sql=COUNT)["refused"]


def test_a_statement_in_steps_costs_no_more_than_its_ceiling(browser):
    sql = "SELECT AVG(wage) FROM cps1988 WITH UTILITY (30, 0.05)"
    price = told(browser, "preview", sql=sql)
    assert price["steps"]
    assert "or more" in price["cost"]
    result = told(browser, "run", sql=sql, limit=price["limit"])
    assert 0 < float(result["cost"]) <= price["limit"]


@pytest.mark.parametrize("steps", [True, False])
def test_what_may_cost_more_than_the_nearest_limit_has_left_says_of_which_cell_that_is(steps):
    """A statement that touches other cells, which have more."""
    told = asking.Price(38.0, 0.5 if steps else 38.0, 35.95, "", 35.95).told()
    assert (told["left"], told["of"]) == ("35.95 left in the cell that has least", "")


CHOSEN = (
    "SELECT region, COUNT(*) FROM cps1988 WHERE region IN (SELECT region FROM cps1988 "
    "GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2) GROUP BY region WITH UTILITY (200, 0.05)"
)


def test_where_nobody_knows_the_whole_price_all_that_is_left_is_agreed_to_or_nothing(browser):
    """The price of a statement whose rows are chosen by a result says what is sure, and so much."""
    price = told(browser, "preview", sql=CHOSEN)
    assert (price["limit"], price["steps"], price["free"]) == (2, True, False)
    assert told(browser, "run", sql=CHOSEN, limit=0.01).keys() == {"dearer"}
    assert told(browser, "run", sql=CHOSEN, limit=price["limit"])["measured"] == 4


def test_a_limit_of_ones_own_holds_where_more_was_agreed_to(browser):
    """Such a statement is told to cost all that is left at most, and stays within the limit."""
    told(browser, "run", sql="SET privacy.max_cost = 0.01")
    price = told(browser, "preview", sql=CHOSEN)
    result = told(browser, "run", sql=CHOSEN, limit=price["limit"])
    assert price["limit"] == 2
    assert 0 < float(result["cost"]) <= 0.01


def test_a_text_of_comments_is_read_at_once():
    """Whatever follows them: the time does not double with each."""
    began = time.monotonic()
    assert not asking.is_query("/* a */\n" * 1000 + "SHOW BUDGET")
    assert asking.is_query("/**/-- a\n(" * 1000 + "SELECT 1")
    assert time.monotonic() - began < 1


def test_whatever_asks_for_numbers_shows_its_price(browser):
    """Also without the word SELECT."""
    told(browser, "run", sql=f"CREATE TEMP VIEW v AS {COUNT}")
    price = told(browser, "preview", sql="TABLE v")
    assert price["limit"] == pytest.approx(PRICE, rel=1e-2)
    assert told(browser, "run", sql="TABLE v").keys() == {"dearer"}
    assert told(browser, "run", sql="TABLE v", limit=price["limit"])["cost"] == price["cost"]


@pytest.mark.parametrize("sql", ["SELEC 1", "x", "VALUES (1)", "DO $$ $$", "; SELECT 1", "GRANT x"])
def test_what_is_no_statement_is_called_no_command(browser, sql):
    """The preview has the error of the run."""
    error = told(browser, "preview", sql=sql)["error"]
    assert error["message"] == told(browser, "run", sql=sql)["error"]["message"]


@pytest.mark.parametrize(
    "sql", ["SET privacy.spend = off", "SHOW BUDGET", f"EXPLAIN UTILITY {COUNT}"]
)
def test_a_command_asks_for_no_numbers(browser, sql):
    assert told(browser, "preview", sql=sql) == {"command": True, "unpriced": ""}


def test_a_command_spends_nothing_if_its_price_cannot_be_shown(visitor):
    """It says so before, and gives what is known."""
    client = visitor("alice")
    count = "SELECT COUNT(*) FROM cps1988 WHERE education = 12 WITH UTILITY (77, 0.05)"
    asked(client, "run", sql=f"PREPARE q AS {count}")
    told_ = asked(client, "preview", sql="/* */ execute q")
    assert told_ == {"command": True, "unpriced": "EXECUTE"}
    error = asked(client, "run", sql="EXECUTE q")["error"]
    assert error["refused"]
    assert "SELECT it" in error["hint"]
    limit = asked(client, "preview", sql=count)["limit"]
    asked(client, "run", sql=count, limit=limit)
    assert asked(client, "run", sql="EXECUTE q")["free"]


def test_what_was_discarded_can_be_made_again(browser):
    """Also for the session that previews."""
    for sql in ("CREATE TEMP VIEW v AS SELECT 1", "DISCARD ALL", "CREATE TEMP VIEW v AS SELECT 2"):
        assert "error" not in told(browser, "run", sql=sql)
        assert "error" not in told(browser, "preview", sql="SELECT 1")
    for sql in ("BEGIN", "CREATE TEMP VIEW w AS SELECT 1", "ROLLBACK"):
        told(browser, "run", sql=sql)
    told(browser, "run", sql="CREATE TEMP VIEW w AS SELECT 2")
    assert "error" not in told(browser, "preview", sql="SELECT * FROM w")


def test_the_last_change_of_many_holds_for_previews(browser, monkeypatch):
    monkeypatch.setattr(asking, "CHANGES_KEPT", 3)
    for half in (100, 200, 300, 400, 500):
        told(browser, "run", sql=f"SET privacy.utility = '{half}, 0.05'")
        price = told(browser, "preview", sql="SELECT COUNT(*) FROM cps1988")
        assert price["numbers"][0]["half"] == str(half)


def test_a_cancellation_that_comes_late_leaves_no_limit_behind(browser, monkeypatch):
    """Somebody clicks on Cancel twice, or the statement ends just then."""
    late, execute = iter([1, 1]), Session.execute

    def cancelled(session, text, *more):
        if text.startswith("RESET") and next(late, None):
            raise QueryCanceledError("canceling statement due to user request")
        return execute(session, text, *more)

    monkeypatch.setattr(Session, "execute", cancelled)
    assert ran(browser, COUNT)["measured"] == 1
    assert told(browser, "run", sql="SHOW privacy.max_cost")["rows"] == [["''"]]


def test_what_fails_in_a_transaction_leaves_no_limit_behind(browser):
    """After a ROLLBACK the session is as it was."""
    for sql in ("BEGIN", "SELECT 1/0 FROM cps1988 GROUP BY region", "ROLLBACK"):
        told(browser, "run", sql=sql)
    for name in ("max_cost", "spend"):
        shown = told(browser, "run", sql=f"SHOW privacy.{name}")["rows"]
        assert shown == [["''" if name == "max_cost" else "on"]]
    assert ran(browser, COUNT)["measured"] == 1


def test_a_late_cancellation_of_the_preview_before_is_not_told(browser, monkeypatch):
    """It stops the next one, which is then made again."""
    execute, hits = Session.execute, []

    def stopped(session, text, parameters=None):
        if text.startswith("EXPLAIN") and not hits:
            hits.append(text)
            raise QueryCanceledError("canceling statement due to user request")
        return execute(session, text, parameters)

    monkeypatch.setattr(Session, "execute", stopped)
    assert "limit" in told(browser, "preview", sql=COUNT)
    assert hits


def test_a_refusal_is_foreseen_and_told_as_such(browser):
    sql = "SELECT COUNT(*) FROM cps1988 WITH UTILITY (0.6, 0.05)"
    price = told(browser, "preview", sql=sql)
    assert "would fit" in price["refused"]
    answer = told(browser, "run", sql=sql, limit=price["limit"])
    assert answer["error"]["refused"]
    assert "requested" in answer["error"]["detail"]


STEPS_REFUSED = "SELECT MEDIAN(education), MAX(experience) FROM cps1988 WITH UTILITY (0.7, 0.05)"


@pytest.mark.parametrize("limit", ["", "0", "2"])
def test_what_is_foreseen_to_be_refused_is_refused_and_not_made_wider(browser, limit):
    """Also in steps, whose ceiling is all that is left: whoever was shown a refusal pays nothing,
    and the reason is that of any other client.
    """
    price = told(browser, "preview", sql=STEPS_REFUSED)
    assert price["refused"]
    assert (price["limit"], price["free"]) == (0, False)
    error = told(browser, "run", sql=STEPS_REFUSED, limit=limit)["error"]
    assert error["refused"]
    assert price["refused"].startswith(error["message"])
    assert error["detail"].endswith("left 2")
    assert paid(browser) == 0


ERRORS = [
    ("SELECT regoin FROM cps1988", 8, "did you mean region?"),
    ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (0, 0.05)", 43, None),
    ("SELECT COUNT(*) FROM cps1988 WHERE", None, None),
    ("SELECT COUNT(*) FROM other", 22, None),
    ("SELECT '", 8, None),
]


@pytest.mark.parametrize("sql, position, hint", ERRORS)
def test_an_error_has_the_place_that_caused_it(browser, sql, position, hint):
    """In the preview as in the run; both say the same."""
    error = told(browser, "preview", sql=sql)["error"]
    if position is not None:
        assert error["position"] == position
    assert 1 <= error["position"] <= len(sql) + 1
    assert hint in (None, error["hint"])
    assert told(browser, "run", sql=sql)["error"]["message"] == error["message"]


def asked(client, what, **fields):
    """The answer to a request of the page, in a console over a server."""
    token = re.search('name="csrf-token" content="([^"]+)"', client.get(PAGE).text)[1]
    return client.post(f"{PAGE}/{what}", data=fields, headers={"x-csrf-token": token}).json()


def test_an_error_over_the_wire_has_its_place_too(visitor):
    client = visitor("alice")
    error = asked(client, "preview", sql="SELECT regoin FROM cps1988")["error"]
    assert (error["position"], error["hint"]) == (8, "did you mean region?")


def test_over_the_wire_a_price_is_kept_and_each_number_says_where_it_comes_from(visitor):
    client = visitor("alice")
    sql = "SELECT smsa, COUNT(*) AS n FROM cps1988 GROUP BY smsa WITH UTILITY (300, 0.05)"
    price = asked(client, "preview", sql=sql)
    assert asked(client, "run", sql=sql, limit=price["limit"] / 2).keys() == {"dearer"}
    result = asked(client, "run", sql=sql, limit=price["limit"])
    assert (result["cost"], result["left"]) == (price["cost"], price["leaves"])
    assert result["explained"] == [[True], [True]]
    why = client.get(f"{PAGE}/results/{result['name']}/1/1").json()
    assert [origin["kind"] for origin in why["origins"]] == ["this"]
    assert asked(client, "preview", sql=sql)["free"]


WAYS = (  # to be paid for what shows no price
    "COPY ({}) TO STDOUT",
    "PREPARE p AS {}; EXECUTE p",
    "PREPARE q AS {}|EXECUTE q",
    "BEGIN|DECLARE c CURSOR FOR {}|FETCH ALL FROM c|COMMIT",
    "/* */ EXPLAIN ANALYZE {}",
    "CREATE TABLE t AS {}",
    "CREATE TEMP TABLE t AS {}",
    "CREATE TEMP VIEW v AS {}|TABLE v",
    "TABLE cps1988",
    "VALUES (({}))",
    "SELECT 1; {}",
    "SET privacy.spend = on|COPY ({}) TO STDOUT",
    "SHOW HISTORY; {}",
    "SET privacy.nonnegative = on; {}",
    "BEGIN; {}; COMMIT",
    "BEGIN; {}",
    "ROLLBACK; {}",
    "DO $$ {} $$",
)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_paid_for_but_what_has_shown_its_price(visitor, served, way):
    """A run without a price measures nothing, whatever is written, and the session goes on."""
    client = visitor("alice")
    engine = served.server.registry.current.engines["cps1988"]
    before = engine.ledger.sequence()
    count = (
        f"SELECT COUNT(*) AS n FROM cps1988 WHERE education = 12 WITH UTILITY ({len(way)}, 0.05)"
    )
    for each in way.format(count).split("|"):
        asked(client, "preview", sql=each)
        asked(client, "run", sql=each)
    kinds = [line.kind for line in engine.ledger.audit(before)]
    assert "measured" not in kinds
    for each in ("ROLLBACK", "RESET ALL"):
        assert "error" not in asked(client, "run", sql=each)
    assert asked(client, "preview", sql=count)["cost"]


def test_what_a_statement_sets_holds_for_prices_and_for_sessions_opened_later(browser):
    """The limit that a user has set for themselves is theirs again after each statement."""
    plain = "SELECT COUNT(*) FROM cps1988 WHERE region = 'west'"
    before = told(browser, "preview", sql=plain)["limit"]
    for sql in ("SET privacy.utility = '50, 0.05'", "SET privacy.max_cost = 0.5"):
        assert "error" not in told(browser, "run", sql=sql)
    assert told(browser, "preview", sql=plain)["limit"] == pytest.approx(2 * before, rel=0.02)
    ran(browser, COUNT)
    assert told(browser, "run", sql="SHOW privacy.max_cost")["rows"] == [["0.5"]]
    (visit,) = browser.app.app.state.visits._visits.values()
    browser.portal.call(visit.rest, time.monotonic() + 1e6)
    assert not visit.lanes
    assert told(browser, "run", sql="SHOW privacy.utility")["rows"] == [["50, 0.05"]]
    assert told(browser, "preview", sql=plain)["limit"] == pytest.approx(2 * before, rel=0.02)


def program_says(python, password=""):
    """What a program prints that was copied from the page."""
    done = subprocess.run(
        [sys.executable, "-c", python],
        env=os.environ | {"PGPASSWORD": password},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_copied_program_gives_the_same_for_nothing(browser):
    """Elsewhere on the machine, from the same state, and as good as the session is set to."""
    told(browser, "run", sql="SET privacy.utility = '70, 0.05'")
    result = ran(browser, "SELECT COUNT(*) FROM cps1988")
    assert "utility='70, 0.05'" in result["python"]
    assert f"({result['rows'][0][0][0].replace(',', '')},)" in program_says(result["python"])
    assert paid(browser) == 1


def test_the_copied_program_finds_the_server_where_it_listens(visitor, served):
    client = visitor("alice")
    price = asked(client, "preview", sql=COUNT)
    result = asked(client, "run", sql=COUNT, limit=price["limit"])
    assert f"'postgresql://alice@127.0.0.1:{served.port}/cps1988'" in result["python"]
    number = result["rows"][0][0][0].replace(",", "")
    assert f"({number},)" in program_says(result["python"], password("alice"))


@pytest.mark.parametrize(
    "listens, address",
    [
        ("10.0.0.7", "postgresql://a%40b@10.0.0.7:7/d%2Fe"),
        ("0.0.0.0", "postgresql://a%40b@seen:7/d%2Fe"),
        ("::1", "postgresql://a%40b@[::1]:7/d%2Fe"),
    ],
)
def test_where_a_server_listens_everywhere_its_clients_come_where_browsers_do(listens, address):
    assert ConsoleDoor(None, None, (listens, 7)).address("a@b", "d/e", "seen") == address


def test_a_running_statement_can_be_stopped(browser, monkeypatch):
    """The statement of the visit that runs, and no later one."""
    stopped, began, execute = threading.Event(), threading.Event(), Session.execute

    def slow(session, text, parameters=None):
        if text == COUNT:
            began.set()
            assert stopped.wait(10)
        return execute(session, text, parameters)

    cancel = Session.cancel
    monkeypatch.setattr(Session, "execute", slow)
    monkeypatch.setattr(Session, "cancel", lambda session: (cancel(session), stopped.set()))
    token = browser.token
    answers = []

    def post():
        headers = {"x-csrf-token": token}
        answers.append(
            browser.post(f"{PAGE}/run", data={"sql": COUNT, "limit": 1}, headers=headers)
        )

    running = threading.Thread(target=post)
    running.start()
    assert began.wait(10)
    assert browser.submit(f"{PAGE}/cancel", 204, fragment=False) == ""
    running.join(20)
    assert stopped.is_set()
    assert answers[0].status_code == 200


def test_only_the_last_of_several_previews_is_worked_out(browser, monkeypatch):
    """One that was overtaken while it waited for its turn is answered with nothing."""
    began, go, execute, seen = threading.Event(), threading.Event(), Session.execute, []

    def slow(session, text, parameters=None):
        if text.startswith("EXPLAIN"):
            seen.append(text)
            began.set()
            assert go.wait(10)
        return execute(session, text, parameters)

    monkeypatch.setattr(Session, "execute", slow)
    token, answers = browser.token, {}

    def post(number):
        sql = f"SELECT COUNT(*) + {number} FROM cps1988 WITH UTILITY (100, 0.05)"
        reply = browser.post(f"{PAGE}/preview", data={"sql": sql}, headers={"x-csrf-token": token})
        answers[number] = reply.json()

    threads = [threading.Thread(target=post, args=(number,)) for number in range(3)]
    threads[0].start()
    assert began.wait(10)
    (visit,) = browser.app.app.state.visits._visits.values()
    mine = asking.Asking.of(visit, "cps1988")
    for number, thread in enumerate(threads[1:], 2):
        thread.start()
        while mine.latest < number:
            time.sleep(0.01)
    go.set()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 2
    assert "limit" in answers[2]
    assert not answers[1]["command"]


def test_a_result_is_downloaded_as_long_as_it_is_kept(browser):
    result = ran(browser, GROUPS)
    for kind, begins in (
        ("csv", b"region,n,n_low"),
        ("json", b'{\n  "columns"'),
        ("parquet", b"PAR1"),
    ):
        reply = browser.get(f"{PAGE}/results/{result['name']}.{kind}")
        assert reply.content.startswith(begins)
        assert reply.headers["content-disposition"].endswith(f'.{kind}"')
    for _ in range(asking.RESULTS_KEPT):
        ran(browser, GROUPS)
    for name in (f"{result['name']}.csv", f"{result['name']}.exe", "x.csv"):
        assert browser.get(f"{PAGE}/results/{name}").status_code == 404


def test_each_number_says_where_it_comes_from(browser):
    first, second = (
        ran(browser, GROUPS),
        ran(browser, "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (600, 0.05)"),
    )
    assert first["explained"] == [[True]] * 4
    why = browser.get(f"{PAGE}/results/{second['name']}/0/0").json()
    assert [origin["what"] for origin in why["origins"]] == ["4 numbers of an earlier statement"]
    assert why["origins"][0]["statement"] == GROUPS
    assert why["below"][-1] > 0.99
    for missing in (f"{second['name']}/0/7", f"{second['name']}/9/0", "x/0/0"):
        assert browser.get(f"{PAGE}/results/{missing}").json() == {"none": True}


def test_statements_of_the_visit_are_listed_newest_first_with_what_they_cost(browser):
    for sql in (COUNT, "SELECT regoin FROM cps1988", "SHOW BUDGET"):
        ran(browser, sql)
    listed = re.findall(
        "<code>(.*?)</code>.*?UTC · ([a-z]+)", browser.page(f"{PAGE}/history"), re.S
    )
    assert [outcome for _, outcome in listed] == ["done", "failed", "cost"]
    assert listed[0][0] == "SHOW BUDGET"


HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>&amp;'


def test_no_name_and_no_statement_is_ever_html(browser):
    """Saved names and texts, statements of the visit, the text in an address, errors."""
    parts = [
        browser.submit(f"{PAGE}/saved", name=HOSTILE, sql=HOSTILE),
        browser.submit(f"{PAGE}/saved", name="", sql=HOSTILE),
        browser.page(f"{PAGE}/saved"),
    ]
    told(browser, "run", sql=HOSTILE)
    parts += [browser.page(f"{PAGE}/history"), browser.page(PAGE, params={"sql": HOSTILE})]
    for text in parts:
        assert "<img src=x" not in text
        assert "<script>alert" not in text
    assert "&#34;&gt;&lt;img src=x" in parts[0]
    assert parts[1].count('role="alert"') == 1
    assert "Nothing" not in browser.submit(f"{PAGE}/saved", delete=HOSTILE)
    assert "img" not in browser.page(f"{PAGE}/saved")


def test_only_analysts_ask(visitor):
    """Whatever the address; and what is posted by others does nothing."""
    client = visitor("sam")
    text = client.get("/d/cps1988/budget").text
    token = re.search('name="csrf-token" content="([^"]+)"', text)[1]
    for address in (PAGE, f"{PAGE}/known", f"{PAGE}/history", f"{PAGE}/saved"):
        assert client.get(address).status_code == 403
    for address in (f"{PAGE}/run", f"{PAGE}/preview", f"{PAGE}/saved"):
        reply = client.post(address, data={"sql": COUNT}, headers={"x-csrf-token": token})
        assert reply.status_code == 403


def test_results_of_one_visit_are_not_those_of_another(visitor):
    clients = [visitor("alice"), visitor("bob")]
    names = [asked(client, "run", sql="SHOW BUDGET")["name"] for client in clients]
    for client, name, other in zip(clients, names, names[::-1], strict=True):
        assert client.get(f"{PAGE}/results/{name}.csv").status_code == 200
        assert client.get(f"{PAGE}/results/{other}.csv").status_code == 404


def test_a_statement_that_is_too_long_is_refused(browser):
    sql = f"SELECT {'1 + ' * asking.LONGEST}1"
    for what in ("preview", "run"):
        assert "at most 100,000 characters" in told(browser, what, sql=sql)["error"]["message"]


def test_every_statement_to_begin_with_can_be_run(folder_of_survey):
    """What a newcomer is offered is right, foreseen to fit, and the first is in the editor."""
    engine = Engine.open(folder_of_survey / "cps1988.yaml", folder_of_survey / "state")
    try:
        begun = starters(engine.policy)
        assert begun[0]["sql"].startswith("SELECT region, COUNT(*)")
        for each in begun:
            explained = engine.session().execute(f"EXPLAIN UTILITY {each['sql']}")
            assert not any("refused" in notice for notice in explained.notices)
    finally:
        engine.close()


def test_the_editor_knows_the_columns_and_their_declared_values(browser):
    known = browser.get(f"{PAGE}/known").json()
    (table,) = known["tables"]
    values = {column["name"]: column["values"] for column in table["columns"]}
    assert values["region"] == ["'midwest'", "'northeast'", "'south'", "'west'"]
    assert values["area"] == ["'north'", "'other'"]
    assert values["education"][:2] == ["0", "1"]
    assert values["wage"] == []
    assert known["utility"] == {"COUNT": [100, 0.05], "SUM(wage)": [170000, 0.05]}


def test_a_result_that_is_too_large_for_a_page_is_not_kept(browser, monkeypatch):
    """It says so; what was measured for it is free to ask again."""
    monkeypatch.setattr(asking, "LARGEST", 50)
    price = told(browser, "preview", sql=COUNT)
    assert told(browser, "run", sql=COUNT, limit=price["limit"])["cost"] == price["cost"]
    sql = "SELECT region, COUNT(*) FROM cps1988 GROUP BY region WITH UTILITY (400, 0.05)"
    limit = told(browser, "preview", sql=sql)["limit"]
    assert "too large" in told(browser, "run", sql=sql, limit=limit)["error"]["message"]
    assert told(browser, "preview", sql=sql)["free"]


@pytest.mark.parametrize("command", ["RESET ALL", "DISCARD ALL"])
def test_after_all_settings_are_reset_numbers_say_where_they_come_from(browser, command):
    told(browser, "run", sql=command)
    price = told(browser, "preview", sql=COUNT)
    assert told(browser, "run", sql=COUNT, limit=price["limit"])["explained"] == [[True]]


def test_the_first_step_of_several_numbers_costs_what_they_cost_together(browser):
    """Groups have nobody in common, numbers have: those that are met in steps are added up."""
    one, two = (
        f"PERCENTILE_CONT({part}) WITHIN GROUP (ORDER BY education)" for part in (0.25, 0.75)
    )
    clause = "WITH UTILITY (2, 0.05)"
    each = [told(browser, "preview", sql=f"SELECT {q} FROM cps1988 {clause}") for q in (one, two)]
    both = told(browser, "preview", sql=f"SELECT {one}, {two} FROM cps1988 {clause}")
    assert all(price["steps"] for price in (*each, both))
    first, second, together = (float(price["cost"].split(" or more")[0]) for price in (*each, both))
    assert together == pytest.approx(first + second, rel=1e-2)


def test_a_user_keeps_no_more_in_many_visits_than_in_one(monkeypatch):
    """
    Past so many bytes the oldest result goes, whichever visit it is of; each sees its own only, and
    what a visit kept ends with it.
    """
    monkeypatch.setattr(visits, "KEPT_OF_USER", 100)
    shelf, one, two = visits.Shelf(), object(), object()
    shelf.put(one, "a", "first", 40, 4)
    shelf.put(two, "b", "second", 40, 4)
    assert (shelf.get(one, "a"), shelf.get(two, "b")) == ("first", "second")
    assert shelf.get(two, "a") is shelf.get(one, "b") is None
    shelf.put(two, "c", "third", 40, 4)
    assert (shelf.get(one, "a"), shelf.get(two, "b")) == (None, "second")
    shelf.put(two, "d", "fourth", 1, 1)
    assert (shelf.get(two, "c"), shelf.get(two, "d")) == (None, "fourth")
    shelf.put(one, "e", "fifth", 99, 4)
    shelf.leave(two)
    assert (shelf.get(two, "d"), shelf.get(one, "e")) == (None, "fifth")
