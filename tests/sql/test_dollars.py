"""Parameters and dollar quotes: blanks between them make no difference."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.sql.parse import dollars, grammar

OPERANDS = [
    "$1",
    "$2",
    "$10",
    "'$1,$'",
    "$$ $1,$ $$",
    "$t$ $1,$2 $t$",
    '"$1,$"',
    "k",
    "5",
    "e'\\'$1'",
]
OPERATORS = [
    ",",
    "+",
    "-",
    "*",
    "/",
    "=",
    "<",
    ">",
    "<=",
    "<>",
    "||",
    "%",
    "\n--$1,$\n",
    "/*$1,$*/,",
]
AFTER = ["", "::int", "::numeric(6,2)", "[1]"]


@given(
    st.lists(st.tuples(*map(st.sampled_from, (OPERANDS, AFTER, OPERATORS))), min_size=1, max_size=8)
)
def test_tokens_are_the_same_without_blanks(pieces):
    """
    In any expression, and each token is where it stands in the text.
    """
    words = [word for piece in pieces for word in piece] + ["$3"]
    close, wide = "".join(words), " ".join(words)
    found, expected = grammar.tokens(close), grammar.tokens(wide)
    assert [(t.token_type, t.text) for t in found] == [(t.token_type, t.text) for t in expected]
    assert [wide[t.start : t.end + 1] for t in expected] == [
        close[t.start : t.end + 1] for t in found
    ]


def test_names_and_other_characters_stay_as_they_are():
    """
    A name may have a dollar sign; a text may have any character, among them the marks.
    """
    texts = [token.text for token in grammar.tokens("SELECT a$1,b$2,'\x01',$1,$2")]
    assert texts == ["SELECT", "a$1", ",", "b$2", ",", "\x01", ",", "$", "1", ",", "$", "2"]


def test_a_quotation_that_does_not_end_is_looked_at_once():
    """
    Of a hundred thousand beginnings the first has all that follows: the work grows with the text.
    """
    for begin in ("/* ", "$a{}$ ", '"$a{}', "'"):
        text = "SELECT $1,$2 " + "".join(begin.format(i) for i in range(100_001))
        found = list(dollars.PARAMETER.finditer(text))
        assert [match["parameter"] for match in found[:2]] == ["$", "$"]
        assert len([match for match in found if match["open"]]) <= 1
        if begin in ("/* ", "$a{}$ "):
            assert len(found) == 3


@given(st.lists(st.tuples(st.sampled_from(OPERANDS), st.sampled_from(OPERATORS)), max_size=9))
def test_who_reads_a_text_again_has_the_same_tokens(parts):
    """
    Whatever was read in between, and whatever the one before did to the list.
    """

    def read(text):
        found = grammar.tokens(text)
        seen = [(token.token_type, token.text, token.start, token.end) for token in found]
        found.clear()
        return seen

    texts = [f"SELECT {left} {between} {left}" for left, between in parts]
    first = [read(text) for text in texts]
    again = [(read(text), read(text)) for text in texts]
    assert again == [(each, each) for each in first]
