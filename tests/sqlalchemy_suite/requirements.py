"""What the dialect can, for SQLAlchemy's suite: the suite's own guesses, but for what follows."""

import sqlalchemy
from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements


def closed(why):
    """Skip what requires this."""
    return exclusions.skip_if(exclusions.BooleanPredicate(True, why))


class Requirements(SuiteRequirements):
    """The dialect of a policy, which is read."""

    create_table = drop_table = closed("read-only: no CREATE, no DROP")
    duplicate_key_raises_integrity_error = closed("read-only: no keys")
    percent_schema_names = closed("read-only: the test has an UPDATE")
    schemas = closed("there is one schema")
    time = time_microseconds = closed("there are no times of day")
    binary_literals = closed("there are no bytes")
    uuid_data_type = closed("there are no UUIDs")
    array_type = closed("there are no columns of arrays")
    datetime_interval = closed("an interval is no parameter")
    infinity_floats = closed("infinity is no parameter")
    regexp_replace = closed("there is no regexp_replace")
    supports_bitwise_and = supports_bitwise_or = supports_bitwise_xor = supports_bitwise_not = (
        supports_bitwise_shift
    ) = closed("there are no operators on bits")
    sql_expression_limit_offset = fetch_expression = closed("LIMIT and OFFSET take numbers")
    window_range = window_range_numeric = window_range_non_numeric = closed(
        "frames of windows are counted in rows"
    )

    ctes = ctes_with_values = table_value_constructor = tuple_in = exclusions.open()
    intersect = except_ = window_functions = nullsordering = regexp_match = exclusions.open()
    boolean_col_expressions = order_by_label_with_expression = exclusions.open()
    fetch_first = fetch_no_order_by = fetch_ties = fetch_offset_with_options = exclusions.open()
    timestamp_microseconds = date_historic = datetime_historic = exclusions.open()
    datetime_literals = exclusions.skip_if(
        exclusions.BooleanPredicate(
            sqlalchemy.__version__ < "2", "SQLAlchemy 1.4 writes no dates into SQL"
        )
    )
