"""What families, and rows, say of a query outside of the dense system.

singles     a row, or a large family, by itself
products    inner products of the rows of two families
system      families of any size, solved together
together    when they are, and the mixture with the best of all other rows
"""
