"""Tests against what nobody here wrote: the llama.cpp server, a scripted HTTP provider, republic's parsing.

`python -m nox -s e2e` installs what they need and runs them; nothing else collects them.
"""
