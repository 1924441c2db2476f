"""The web page for people: signing in, forms that only our own pages can send, and the pages themselves.

It stands on the API: pages ask for the same `Reader`, `Operator` and `InService`, whether a person comes
with a session's cookie or a program with a bearer token.
"""
