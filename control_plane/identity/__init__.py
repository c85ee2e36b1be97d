"""Who speaks to the control plane: machine identities and their enrolment, and operator tokens.

An agent or edge proves itself by a signature over each request, an operator by a token of which only the digest is
stored. Keys of teams belong to `tenancy`.
"""
