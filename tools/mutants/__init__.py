"""A small mutation run: what the tests of a module notice when the module is changed.

`python -m tools.mutants --help` tells how. `changes` finds the places, `modules` says which tests speak for which
module, `trees` has the copies that are changed, `__main__` runs it all and tells the score.
"""
