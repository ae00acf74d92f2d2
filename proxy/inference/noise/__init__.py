"""The noise that is drawn: ``mechanism``, and with less of it again: ``refinement``."""
