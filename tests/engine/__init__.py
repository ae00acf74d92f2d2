"""Tests of the whole way of a query."""
