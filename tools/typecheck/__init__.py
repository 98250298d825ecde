"""Checks bub's typing as a consumer sees it: four checkers over files of good forms and files of mistakes."""
