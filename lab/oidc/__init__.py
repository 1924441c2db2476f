"""An OpenID provider on loopback, to try the sign-in of people without a company's own.

It signs with real RSA keys, checks the client's secret and PKCE, and gives each code once. It asks nobody
for a password: whoever reaches it picks who they are, so it listens on loopback alone.
`python -m lab.oidc --help` tells how it is started.
"""
