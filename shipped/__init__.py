"""How the models that ship were made: run from a clone, where this folder is; it is no part of the package."""
