"""The PostgreSQL door: a thin proxy of the wire protocol in front of an empty mirror.

Read ``serve`` (the server), ``registry`` (policies, users, mirrors, how they change), ``login``
(from a connection to a session), then in ``session``: ``relay`` (a session), ``conversation`` (the
protocol as a state machine without I/O, and its contract) with ``dispatch``, ``simple_query`` and
``extended_query``.  ``workers`` has the processes that read statements, with what is in
``statements``: ``routing`` (who answers what), parameters, probes.  ``mirror`` makes the
PostgreSQL behind it.  What operators see: ``logs`` (the fields a line may have) and ``metrics``;
``serve`` fills them.
"""
