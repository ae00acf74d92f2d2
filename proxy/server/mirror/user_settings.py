"""The settings that a user may change, by SET, ``set_config``, or when connecting.

They say how the user's own session reads and writes, and harm nobody.  Not among them: how much
memory and disk a session takes, what the log says, and what would make a text mean something else
to PostgreSQL than to the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proxy.errors import Error, InsufficientPrivilegeError

_LIST = """
    application_name array_nulls bytea_output check_function_bodies client_encoding
    client_min_messages cursor_tuple_fraction datestyle default_text_search_config
    default_transaction_deferrable default_transaction_isolation default_transaction_read_only
    enable_async_append enable_bitmapscan enable_gathermerge enable_hashagg enable_hashjoin
    enable_incremental_sort enable_indexonlyscan enable_indexscan enable_material enable_memoize
    enable_mergejoin enable_nestloop enable_seqscan enable_sort enable_tidscan
    escape_string_warning extra_float_digits from_collapse_limit geqo
    idle_in_transaction_session_timeout idle_session_timeout intervalstyle jit join_collapse_limit
    lc_monetary lc_numeric lc_time lock_timeout plan_cache_mode quote_all_identifiers row_security
    search_path seed standard_conforming_strings statement_timeout synchronize_seqscans
    synchronous_commit timezone transaction_deferrable transaction_isolation transaction_read_only
    transaction_timeout xmlbinary xmloption
"""
NAMES = _LIST.split()
DOTTED = r"^[a-z_][a-z0-9_$]*(\.[a-z_][a-z0-9_$]*)+$"  # names that PostgreSQL gives no meaning to
ONLY_ON = ("standard_conforming_strings",)  # else a text would be read in two ways
ONLY_OFF = ("jit",)  # compiling takes memory
ON, OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
OURS = ("user", "database", "options")  # parameters of a connection that are no settings
OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|\S)*)(?:\s+|\Z)", re.DOTALL)
HINT = "leave it as it is: what one session may take and log is set by the server"


def refused(name: str, value: str | None) -> Error | None:
    """Return why a user may not set a setting to a value; None if they may, or for its default."""
    low, word = name.lower(), (value or "").lower()
    known = low in NAMES or re.match(DOTTED, low) is not None
    if low in ONLY_ON or low in ONLY_OFF:
        known = word in (ON if low in ONLY_ON else OFF)
    if known or value is None:
        return None
    return InsufficientPrivilegeError(f'permission denied to set parameter "{name}"', hint=HINT)


def refused_at_login(parameters: Mapping[str, str]) -> Error | None:
    """Return why a connection may not begin with these parameters; None if it may."""
    settings = [(name, value) for name, value in parameters.items() if name not in OURS]
    options, at = parameters.get("options", "").strip(), 0
    while at < len(options):
        match = OPTION.match(options, at)
        if match is None:
            return InsufficientPrivilegeError(
                "permission denied for an option of the command line",
                hint="options are written -c name=value",
            )
        value = re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)
        settings.append((match[1].replace("-", "_"), value))
        at = match.end()
    return next(filter(None, (refused(name, value) for name, value in settings)), None)
