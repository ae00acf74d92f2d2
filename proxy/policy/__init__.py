"""The data steward's policy: YAML -> Policy; a wrong file fails here, with file, line and key.

``keys`` is the one table of keys: the reader, the documentation and the JSON Schema of editors
come from it.  ``document`` reads YAML with lines, ``kinds`` the values, ``axes`` the domain,
``spending`` the budgets, ``load`` the rest; ``faults`` keeps what is wrong until all is read;
``model`` is what everyone else sees.  ``weaker`` compares two
policies; ``users`` reads who may connect.
"""

from proxy.policy.keys import describe, json_schema
from proxy.policy.load import Reading, load, read
from proxy.policy.model import (
    Analyst,
    CellBudget,
    Guard,
    Partition,
    Policy,
    Privacy,
    PublicTable,
    Source,
    Unit,
    Utility,
    WarmUp,
)
from proxy.policy.users import User, Users, Verifier, load_users, saslprep, scram_verifier
from proxy.policy.weaker import weaker

__all__ = [
    "Analyst",
    "CellBudget",
    "Guard",
    "Partition",
    "Policy",
    "Privacy",
    "PublicTable",
    "Reading",
    "Source",
    "Unit",
    "User",
    "Users",
    "Utility",
    "Verifier",
    "WarmUp",
    "describe",
    "json_schema",
    "load",
    "load_users",
    "read",
    "saslprep",
    "scram_verifier",
    "weaker",
]
