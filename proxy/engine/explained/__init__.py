"""Explained answers: how probable the values of a number are, and which answers it follows from.

``statements`` says, while the history is at hand, who measured what; ``explanations`` is made of
that and of the laws of the noise, for the numbers that are shown.
"""
