"""Results in a notebook: ``tables`` renders them as HTML, ``plots`` draws them with matplotlib.

A cursor does both; nothing here knows where a result is from.
"""
