"""The PostgreSQL door: a thin proxy of the wire protocol in front of an empty mirror.

Read ``serve`` (the server), ``served`` (policies, users, mirrors, and how they change), ``login``
(from a connection to a session), ``link`` (a session), ``conversation`` with ``simple`` and
``extended`` (the protocol as a state machine without I/O), and ``question`` (who answers what).
``mirror`` and ``embedded`` make the PostgreSQL behind it.
"""
