"""Budget, History, Policy and Audit: who sees what of them, and that what is seen is true.

Names, values, users' texts and descriptions are hostile in all of them.
"""

import html
import json
import re
from pathlib import Path

import pytest

from proxy.console import audit as audit_page
from proxy.console.budget import questions
from proxy.console.pages import sentence
from proxy.domain import Attribute
from proxy.engine import Engine
from proxy.steward import audit, backup, restore
from proxy.steward.spent import label
from tests.console.roles import PASSWORD, XSS, entered, fill, made

COST = 0.07547125489054451  # of a count within 30, with confidence 90%


@pytest.fixture
def backend(tmp_path):
    """A console's backend, over a dataset in which ann and bob have asked something."""
    backend = made(tmp_path / "folder")
    yield backend
    backend.engine.close()


def page(backend, user, place):
    """What a user is shown of a place: status and text."""
    with entered(backend, user) as browser:
        reply = browser.get(f"/d/people/{place}")
        return reply.status_code, reply.text


OPEN = {
    "budget": "ann sam aud all",
    "budget/heat": "ann sam aud all",
    "budget/typical": "ann sam aud all",
    "history": "ann aud all",
    "policy": "sam aud all",
    "audit": "sam aud all",
    "audit/line/1": "sam aud all",
}


@pytest.mark.parametrize("user", ["ann", "sam", "aud", "all"])
def test_each_role_has_its_pages_and_no_other_by_its_address(backend, user):
    with entered(backend, user) as browser:
        for place, users in OPEN.items():
            status = browser.get(f"/d/people/{place}").status_code
            assert (place, status) == (place, 200 if user in users.split() else 403)


@pytest.mark.parametrize("user", ["ann", "aud"])
@pytest.mark.parametrize("place", ["policy/check", "policy/apply"])
def test_only_stewards_check_and_apply_policies(backend, user, place):
    before = backend.engine.policy.path.read_text()
    with entered(backend, user) as browser:
        headers = {"x-csrf-token": browser.token("history" if user == "ann" else "audit")}
        reply = browser.post(f"/d/people/{place}", data={"text": ""}, headers=headers)
    assert reply.status_code == 403
    assert backend.engine.policy.path.read_text() == before


@pytest.mark.parametrize("place", ["policy/check", "policy/apply", "audit/verify"])
def test_nothing_is_done_without_the_visits_token(backend, place):
    with entered(backend, "all") as browser:
        fields = {"text": "", "csrf": "guessed"}
        assert browser.post(f"/d/people/{place}", data=fields).status_code == 403
        assert browser.get(f"/d/people/{place}").status_code == 405


@pytest.mark.parametrize("place", [*OPEN, f"budget?rows={XSS}", f"history?words={XSS}"])
def test_no_name_value_or_text_is_markup(backend, place):
    status, text = page(backend, "all", place)
    assert status == 200
    assert "<img src=x" not in text
    if place not in ("audit/line/1",):
        assert html.escape(XSS) in text or "\\u003cimg" in text


def test_an_analyst_is_shown_nothing_of_what_others_asked_and_paid(backend):
    """
    But what the dearest cell of the history has paid.
    """
    _, budget = page(backend, "ann", "budget")
    _, history = page(backend, "ann", "history")
    curves = json.loads(re.search(r'id="curves">(.*?)</script>', budget)[1])
    assert [each["label"] for each in curves["series"]] == ["ann"]
    assert len(curves["times"]) == 1  # and not bob's
    assert not re.search(r"\bbob\b", budget + history)
    assert "town, COUNT" not in history
    assert "age &lt; 5" in history
    assert "0.1509" in budget  # the dearest cell, as privacy.budget says


def test_the_headline_is_of_the_limit_that_binds(backend):
    """
    Of whichever has least left, as everywhere else: of some cells; of a cap, where that is nearer.
    """
    for user, name in (("ann", "age = 9"), ("bob", "analyst bob")):
        backend.ask("bob", "SELECT COUNT(*) FROM people WHERE age < 5 AND town = 'a'")
        rules = backend.ask(user, "SHOW BUDGET").rows
        binds, budget, _, left, _ = min(rules, key=lambda rule: rule[3])
        assert name in binds
        _, text = page(backend, user, "budget")
        told = re.search(r"meter-bar.*?<p>(.*?)</p>", text, re.DOTALL)[1]
        words = f"{left:.4g} of {budget:.4g} alpha is left of the limit that binds first: {binds}."
        assert html.unescape(re.sub("<.*?>", "", told)) == words


def test_a_label_is_never_blank_and_hides_nothing():
    """
    In the maps of the budget, and among a policy's values.
    """
    axis = Attribute("town", "text", ("", "NULL", "a\u202eb", "c"), nulls="group")
    labels = [label(axis, code) for code in range(axis.size)]
    assert labels == ["''", "'NULL'", "a\\u202eb", "c", "NULL"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("refused: it costs too much", "Refused: it costs too much."),
        ("the visit has ended", "The visit has ended."),
        ("did you mean region?", "Did you mean region?"),
        ("proxy/sql/FUNCTIONS.md lists them", "proxy/sql/FUNCTIONS.md lists them."),
        ("abs(x) is the operator @.", "abs(x) is the operator @."),
        ("r: approximate intervals", "r: approximate intervals."),
    ],
)
def test_a_text_is_a_sentence_and_a_name_stays_as_it_is(text, said):
    assert sentence(text) == said


def shown_of_cells(text):
    """What the Budget page shows of cells: of each what it paid, and its limit; and shares."""
    nearest = re.search(r'aria-labelledby="nearest">(.*?)</table>', text, re.DOTALL)[1]
    numbers = [float(each) for each in re.findall(r'class="number">([\d.]+)<', nearest)]
    shares = [int(each) for each in re.findall(r'class="level\d+">(\d+)<', text)]
    return list(zip(numbers[::2], numbers[1::2], strict=True)), shares


def test_who_shares_a_history_sees_of_its_cells_only_tenths(backend):
    """
    So that what others pay for one statement, and what it was about, cannot be read off from it.
    """
    cells, shares = shown_of_cells(page(backend, "ann", "budget")[1])
    assert cells
    assert max(shares) > 0
    assert all(abs(paid / limit * 10 - round(paid / limit * 10)) < 1e-3 for paid, limit in cells)
    assert all(share % 10 == 0 for share in shares)
    exact, all_shares = shown_of_cells(page(backend, "sam", "budget")[1])
    assert max(cells)[0] < max(exact)[0] < max(cells)[0] + max(cells)[1] / 10
    assert all(share <= own < share + 10 for share, own in zip(shares, all_shares, strict=True))
    assert any(share % 10 for share in all_shares)


def test_an_auditor_is_shown_what_everybody_asked_a_steward_what_it_cost(backend):
    _, history = page(backend, "aud", "history")
    assert "town, COUNT" in history
    assert "age &lt; 5" in history
    for user in ("aud", "sam"):
        _, budget = page(backend, user, "budget")
        assert '<th scope="row" class="said">bob</th>' in budget


def test_a_steward_finds_no_text_of_a_statement_in_the_audit_log(backend):
    """
    Neither shown nor searched, whole or by line; an auditor does.
    """
    backend.engine.ledger.note("refused", "ann", "SELECT nothing -- age", {"reason": "age"})
    for user, there in (("sam", False), ("aud", True)):
        with entered(backend, user) as browser:
            every = browser.get("/d/people/audit").text
            found = browser.get("/d/people/audit?words=age").text
            line = browser.get("/d/people/audit/line/2").text
            assert "SELECT" not in browser.get("/d/people/audit/line/1").text
        assert all(name in every for name in ("ann", "bob", "measured", "refused"))
        assert [("SELECT" in each) for each in (every, line)] == [there] * 2
        assert ("No line is like that" in found) is not there


def test_lines_are_found_by_user_kind_and_day(backend):
    with entered(backend, "aud") as browser:

        def seqs(**query):
            text = browser.get("/d/people/audit", params=query).text
            return re.findall(r'aria-label="Line (\d+)"', text)

        assert seqs() == ["3", "2", "1"]
        assert seqs(user="bob") == ["3"]
        assert seqs(kind="init") == ["1"]
        assert seqs(until="2020-01-01") == []
        assert seqs(since="2020-01-01", words="TOWN") == ["3"]


def test_a_line_tells_how_it_is_chained(backend):
    """
    Its hash is that of the line with the hash before.
    """
    _, text = page(backend, "aud", "audit/line/3")
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(?:<code>)?(.*?)(?:</code>)?</dd>", text))
    _, before = page(backend, "aud", "audit/line/2")
    assert facts["hash"] == facts["hash, computed again"]
    assert f"<dt>hash</dt><dd><code>{facts['hash of the line before']}" in before
    assert page(backend, "aud", "audit/line/99")[0] == 400


@pytest.mark.slow
def test_what_is_verified_is_said_and_what_disagrees_too(backend):
    """
    In a process of its own, which reads the state as it is.
    """
    with entered(backend, "sam") as browser:
        assert "Everything agrees" in browser.part("audit/verify")
        cube = next((backend.folder / "state" / "people").glob("cube-*.duckdb"))
        cube.write_bytes(b"damaged")
        assert "does not agree" in re.sub("do not", "does not", browser.part("audit/verify"))


def test_a_verification_that_cannot_be_had_is_an_error_not_a_verdict(backend, monkeypatch):
    monkeypatch.setattr(audit_page.sys, "executable", "/bin/false")
    with entered(backend, "sam") as browser:
        text = browser.part("audit/verify")
    assert "It failed" in text
    assert "agrees" not in text


def test_typical_questions_cost_what_explain_says(backend):
    """
    What is known is free; of the others, as many as the least that is left affords.
    """
    with entered(backend, "ann") as browser:
        text = browser.get("/d/people/budget/typical").text
    rows = re.findall(r"<a [^>]*>(.*?)</a></th>\s*(.*?)</tr>", text, re.S)
    told = {name: re.sub(r"<[^>]*>|\s+", " ", rest).split() for name, rest in rows}
    assert told["COUNT by town"] == ["±30", "free", "any", "number"]
    assert told["COUNT by age"][1] == f"{COST:.4g}"
    left = 0.5 - COST  # where age is 9, which one of the two has asked about
    assert told["COUNT by age"][2:] == ["about", str(int(left / COST)), "left"]
    assert len(told) == len(questions(backend.engine.policy))


def test_a_heat_map_is_of_the_two_attributes_that_are_picked(backend):
    with entered(backend, "sam") as browser:
        text = browser.get("/d/people/budget/heat?rows=town&columns=age").text
        one = browser.get("/d/people/budget/heat?rows=age&columns=").text
        long = browser.get("/d/people/budget/heat", params={"rows": XSS, "columns": "age"}).text
    cells = re.findall(r'<td class="level(\d+)">(\d+)</td>', text)
    assert cells == [*[("2", "15")] * 5, *[("1", "8")] * 5] * 3
    assert len(re.findall("<td ", one)) == 10
    assert "125 values of" in long
    assert len(re.findall("<td ", long)) == 400


@pytest.mark.slow
def test_ten_thousand_statements_are_shown_by_the_page(backend):
    """
    The newest first, and found by their words.
    """
    fill(backend, 10_000)
    with entered(backend, "aud") as browser:
        first = browser.get("/d/people/history").text
        assert "10,002 statements, page 1 of 101" in first
        assert len(re.findall("<code>", first)) == 100
        assert "number 9999 " in first
        assert "number 0 " in browser.get("/d/people/history?page=100").text
        found = browser.get("/d/people/history?words=NUMBER+4321").text
        assert re.findall(r"number \d+", found) == ["number 4321"]
        assert browser.get("/d/people/history?page=999999999999").status_code == 200
        assert browser.get("/d/people/audit").status_code == 200
        assert browser.get("/d/people/budget").status_code == 200


def test_a_server_shows_them_to_its_users(visitor):
    """
    Over the wire what is asked, from the ledger what is shown.
    """
    alice, sam = visitor("alice"), visitor("sam")
    base = "/d/cps1988"
    assert "privacy.budget" not in alice.get(f"{base}/history").text
    assert "alpha is left" in alice.get(f"{base}/budget").text
    typical = alice.get(f"{base}/budget/typical").text
    assert re.search("about [0-9]+ left", typical)
    assert alice.get(f"{base}/policy").status_code == 403
    assert "experience" in sam.get(f"{base}/policy").text
    assert "init" in sam.get(f"{base}/audit").text
    token = re.search('name="csrf-token" content="([^"]+)"', sam.get(f"{base}/policy").text)[1]
    given = {"text": "dataset: cps1988", "digest": "", "csrf": token}
    assert "things are wrong" in sam.post(f"{base}/policy/check", data=given).text


# --- changing a policy ------------------------------------------------------------------------


@pytest.fixture
def steward(backend):
    """A browser of a steward's."""
    with entered(backend, "sam") as browser:
        yield browser


def field(text, name):
    """The value of a hidden field."""
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', text)[1])


def checked(browser, backend, *changes):
    """Check the file with changes; return the fields with which it is applied."""
    text = Path(backend.folder / "people.yaml").read_text()
    digest = field(browser.get("/d/people/policy").text, "digest")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    part = browser.part("policy/check", text=text, digest=digest)
    fields = {name: field(part, name) for name in ("digest", "checked", "weaker") if name in part}
    return part, {"text": text, "password": PASSWORD} | fields


STRICTER = "budget: 1\n", "budget: 0.9\n"
WEAKER = "budget: 1\n", "budget: 2\n"


def test_faults_are_told_with_their_lines(steward, backend):
    part, _ = checked(
        steward, backend, ("budget: 1\n", "budget: -1\n"), ("type: integer", "typ: integer")
    )
    assert re.findall(r'data-line="(\d+)"', part) == ["8", "10", "14"]
    assert str(backend.folder) not in part


def test_a_policy_is_applied_and_audited_under_its_stewards_name(steward, backend):
    """
    As a browser sends it, with line ends of its own; the page then shows it.
    """
    part, fields = checked(steward, backend, STRICTER)
    assert "It protects no less" in part
    fields["text"] = fields["text"].replace("\n", "\r\n")
    assert "is in force now" in steward.part("policy/apply", **fields)
    assert "budget: 0.9\n" in (backend.folder / "people.yaml").read_text()
    assert backend.engine.policy.privacy.budget == pytest.approx(0.9)
    line = audit(backend.folder / "people.yaml", backend.folder / "state")[-1]
    assert (line.kind, line.user) == ("policy", "sam")
    assert "0.9 alpha" in steward.get("/d/people/policy").text


@pytest.mark.parametrize(
    "change, told",
    [
        ({"password": "guess"}, "Password authentication failed"),
        ({"password": ""}, "Password authentication failed"),
        ({"text": "dataset: people"}, "The text has changed since it was checked"),
        ({"digest": "0" * 64}, "has changed since this was begun"),
        ({}, "not all of that was accepted"),
        ({"accept": "yes", "weaker": "[]"}, "not all of that was accepted"),
        ({"accept": "yes", "weaker": "no list"}, "not all of that was accepted"),
    ],
)
def test_a_policy_that_protects_less_is_not_applied(steward, backend, change, told):
    """
    Without the password, the tick, or with another text or file than was checked.
    """
    before = (backend.folder / "people.yaml").read_text()
    _, fields = checked(steward, backend, WEAKER)
    assert told in steward.part("policy/apply", **fields | change)
    assert (backend.folder / "people.yaml").read_text() == before
    kinds = [line.kind for line in audit(backend.folder / "people.yaml", backend.folder / "state")]
    assert "policy" not in kinds


def test_a_policy_that_protects_less_is_applied_once_it_is_accepted(steward, backend):
    part, fields = checked(steward, backend, WEAKER)
    assert "privacy.budget is 2, it was 1" in part
    assert "is in force now" in steward.part("policy/apply", **fields, accept="yes")
    assert backend.engine.policy.privacy.budget == 2


def test_a_file_that_was_changed_meanwhile_is_left_alone(steward, backend):
    _, fields = checked(steward, backend, STRICTER)
    path = backend.folder / "people.yaml"
    path.write_text(path.read_text() + "# by hand\n")
    assert "has changed since this was begun" in steward.part("policy/apply", **fields)
    assert path.read_text().endswith("# by hand\n")


def test_an_auditor_is_shown_the_file_and_no_way_to_change_it(backend):
    _, text = page(backend, "aud", "policy")
    assert "max_records: 1000" in text
    assert "<form" not in text.partition('id="main"')[2]


def test_a_ledger_that_was_put_back_is_read_again(backend):
    """
    Lines are kept from page to page as long as their chain stands.
    """
    policy, state = backend.engine.policy.path, backend.folder / "state"
    backup(policy, backend.folder / "backup", state)
    backend.ask("ann", "SELECT COUNT(*) FROM people WHERE age > 7 WITH UTILITY (40, 0.1)")
    assert "age &gt; 7" in page(backend, "ann", "history")[1]
    backend.engine.close()
    restore(policy, backend.folder / "backup", state)
    backend.engine = Engine.open(policy, state)
    _, text = page(backend, "aud", "audit")
    assert "age &gt; 7" not in text
    assert "restore" in text
