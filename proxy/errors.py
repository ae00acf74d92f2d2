"""The errors a client of the proxy may see: the PEP 249 tree, each leaf with its SQLSTATE.

The wire server sends ``sqlstate``, ``detail``, ``hint`` and ``position`` in its ErrorResponse, so
that psycopg raises on the client the same PEP 249 class that our own DB-API raises.  No message
holds a value read from the protected data.  A caller's bug is a ``ValueError``, not one of these.
"""

from __future__ import annotations


class Warning(Exception):
    """An important warning (PEP 249); the proxy itself reports notices instead."""


class Error(Exception):
    """The base of every error the proxy raises towards a client.

    ``detail`` and ``hint`` are PostgreSQL's fields of these names; ``position`` is the 1-based
    character of the statement at which the fault lies.
    """

    sqlstate: str = "XX000"  # internal_error
    cost: float = 0.0  # alpha that the statement had paid before it failed; the hint says so

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        return "\n".join(
            line
            for line in (
                self.message,
                self.detail and f"DETAIL: {self.detail}",
                self.hint and f"HINT: {self.hint}",
            )
            if line
        )


class InterfaceError(Error):
    """The DB-API itself was used wrongly: a closed cursor, a missing parameter."""

    sqlstate = "08003"  # connection_does_not_exist


class DatabaseError(Error):
    """An error that comes from the database side."""


class DataError(DatabaseError):
    """A value does not fit: out of range, division by zero; ``sqlstate`` says which of these."""

    sqlstate = "22000"  # data_exception

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint, position=position)
        if sqlstate is not None:
            self.sqlstate = sqlstate


class OperationalError(DatabaseError):
    """The proxy cannot do now what was asked, though it was asked correctly."""

    sqlstate = "58000"  # system_error


class IntegrityError(DatabaseError):
    """The ledger, its anchor and the cube do not agree."""

    sqlstate = "XX001"  # data_corrupted


class InternalError(DatabaseError):
    """A fault of the proxy itself."""


class ProgrammingError(DatabaseError):
    """The statement, or the call, is wrong as it stands."""

    sqlstate = "42000"  # syntax_error_or_access_rule_violation


class NotSupportedError(DatabaseError):
    """Correct SQL that cannot be answered privately, or not yet."""

    sqlstate = "0A000"  # feature_not_supported


# --- leaves: the statement -------------------------------------------------------------------


class SQLSyntaxError(ProgrammingError):
    """The text does not parse."""

    sqlstate = "42601"


class UndefinedColumnError(ProgrammingError):
    """No attribute or measure of that name."""

    sqlstate = "42703"


class UndefinedTableError(ProgrammingError):
    """No dataset, public table or result of that name."""

    sqlstate = "42P01"


class UndefinedParameterError(ProgrammingError):
    """No parameter has that number."""

    sqlstate = "42P02"


class UndefinedFunctionError(ProgrammingError):
    """No such function, or none that is known to mean the same everywhere."""

    sqlstate = "42883"


class WrongObjectTypeError(ProgrammingError):
    """What can be done with tables only, of a view."""

    sqlstate = "42809"


class DuplicateColumnError(ProgrammingError):
    """Two columns of a view have one name."""

    sqlstate = "42701"


class DuplicateTableError(ProgrammingError):
    """There is a view of that name."""

    sqlstate = "42P07"


class InvalidTableDefinitionError(ProgrammingError):
    """A view that cannot be made of this, or not in the place of the one that is there."""

    sqlstate = "42P16"


class AmbiguousColumnError(ProgrammingError):
    """More than one column answers to the name."""

    sqlstate = "42702"


class GroupingError(ProgrammingError):
    """A column is neither grouped nor aggregated."""

    sqlstate = "42803"


class TypeMismatchError(ProgrammingError):
    """An expression has a type that its place does not allow."""

    sqlstate = "42804"


class UtilityError(ProgrammingError):
    """The utility is missing, or half_width <= 0, or delta is not between 0 and 1."""

    sqlstate = "22023"  # invalid_parameter_value


class StatementTooComplexError(OperationalError):
    """The text is too long or nested too deeply."""

    sqlstate = "54001"  # statement_too_complex


class QueryCanceledError(OperationalError):
    """The client, or a time limit, ended the statement; nothing more was charged."""

    sqlstate = "57014"  # query_canceled


class InsufficientPrivilegeError(ProgrammingError):
    """The user may not do this."""

    sqlstate = "42501"  # insufficient_privilege


class DependentObjectsError(IntegrityError):
    """A view that another one reads."""

    sqlstate = "2BP01"  # dependent_objects_still_exist


# --- leaves: the transaction -----------------------------------------------------------------


class ActiveTransactionError(InternalError):
    """What cannot be done inside a transaction."""

    sqlstate = "25001"  # active_sql_transaction


class NoTransactionError(InternalError):
    """What can only be done inside a transaction."""

    sqlstate = "25P01"  # no_active_sql_transaction


class FailedTransactionError(InternalError):
    """An earlier statement of the transaction failed: ROLLBACK first."""

    sqlstate = "25P02"  # in_failed_sql_transaction


class UndefinedSavepointError(OperationalError):
    """No savepoint of that name in this transaction."""

    sqlstate = "3B001"  # invalid_savepoint_specification


# --- leaves: the privacy ---------------------------------------------------------------------


class InsufficientBudgetError(OperationalError):
    """Refused: the statement costs some cell more privacy budget than that cell has left.

    Nothing was read and nothing was spent.  ``requested``, ``spent`` and ``left`` are in alpha
    (privacy loss, nats) of the budget that binds; all three follow from public queries alone.
    """

    sqlstate = "53400"  # configuration_limit_exceeded

    def __init__(
        self,
        message: str,
        *,
        requested: float,
        spent: float,
        left: float,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            message,
            detail=f"requested {requested:.6g}, spent {spent:.6g}, left {left:.6g}",
            hint=hint,
        )
        self.requested = requested
        self.spent = spent
        self.left = left


# --- leaves: the policy and the state --------------------------------------------------------


class PolicyError(ProgrammingError):
    """A policy file is wrong; ``file``, ``line`` (1-based) and ``key`` say where.

    ``others`` are the further faults that were found with it, which ``detail`` names.
    """

    sqlstate = "F0000"  # config_file_error
    others: tuple[Error, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        what = f"{key}: {message}" if key else message
        super().__init__(f"{where}: {what}" if where else what, hint=hint)
        self.file = file
        self.line = line
        self.key = key


class StateError(OperationalError):
    """The state folder is missing, belongs to another policy, or is not yet made."""

    sqlstate = "55000"  # object_not_in_prerequisite_state


class SourceError(OperationalError):
    """The protected source cannot be read; its own message is withheld, it may hold data."""

    sqlstate = "58030"  # io_error
