"""Two-phase transactions with a lease, in the words of Kafka's protocol, which has none (docs/transactions.md).

A client asks for a lease by a timeout that Kafka passes over for two-phase transactions. It renews the lease, and ends
it by saying that the transaction is prepared, with AddPartitionsToTxn, verify-only, of a name that no topic can have.
"""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions that another process ends (two-phase commit): never."""
LEASED_MS = NO_TIMEOUT_MS - 1
"""Two-phase, and aborted when nobody has renewed its lease for `tidelog.transaction.lease.ms`."""
PREPARED_MS = NO_TIMEOUT_MS - 2
"""Two-phase with a lease, which has been prepared since: it never ends by itself. The next one has a lease again."""

RENEW = "tidelog:renew"
PREPARE = "tidelog:prepare"
