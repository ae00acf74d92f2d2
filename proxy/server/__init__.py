"""The PostgreSQL door: a thin proxy of the wire protocol in front of an empty mirror.

Read ``serve`` (the server), ``registry`` (policies, users, mirrors, how they change), ``login``
(from a connection to a session), then in ``session``: ``relay`` (a session), ``conversation`` with
``simple_query`` and ``extended_query`` (the protocol as a state machine without I/O), ``routing``
(who answers what).  ``mirror`` makes the PostgreSQL behind it.
"""
