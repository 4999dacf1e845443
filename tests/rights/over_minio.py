"""``make test-rights``: the policies of docs/operations/access.md, on an S3 server that enforces them.

Not among the usual tests: the server is built first, which takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rights.roles import MAILBOX, OPERATIONS, ROLES, Lake, check, make, outcomes, policy
from tools.minio import PolicyServer, build, policy_server
from txnlog.errors import StoreError

pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyServer]:
    """The server, with an empty bucket."""
    build()
    with policy_server() as found:
        yield found


@pytest.fixture
def root(server: PolicyServer, request: pytest.FixtureRequest) -> str:
    """The folder of a root that the server's owner made."""
    name = f"lake-{abs(hash(request.node.name)):x}"
    make(Lake(f"s3://{server.bucket}/{name}", server.options()))
    return name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_do_what_the_page_says_and_nothing_else(server: PolicyServer, root: str, role: str) -> None:
    user = Lake(f"s3://{server.bucket}/{root}", server.options(policy(role, server.bucket, root)))
    check(role, outcomes(user))


def test_a_producer_may_share_entries_by_the_statement_of_the_page_and_nothing_more(
    server: PolicyServer, root: str
) -> None:
    allowed = policy("Producer", server.bucket, root)
    allowed["Statement"].append(policy("Commits that share an entry", server.bucket, root))
    user = Lake(f"s3://{server.bucket}/{root}", server.options(allowed))
    check("Producer", outcomes(user), "share an entry")
    user.store().delete(MAILBOX)


def test_the_policy_of_one_namespace_shows_no_object_of_another(server: PolicyServer, root: str) -> None:
    owner = Lake(f"s3://{server.bucket}/{root}", server.options())
    with owner.open("another", create=True):
        pass
    user = Lake(owner.root, server.options(policy("Maintainer", server.bucket, root)))
    with pytest.raises(StoreError, match="no right to read"), user.open("another", mode="r"):
        pass


def test_whoever_may_do_nothing_is_refused_everything(server: PolicyServer, root: str) -> None:
    nothing = policy("Reader", server.bucket, "somewhere-else")
    user = Lake(f"s3://{server.bucket}/{root}", server.options(nothing))
    for operation in OPERATIONS.values():
        with pytest.raises(StoreError, match="no right to"):
            operation(user)
